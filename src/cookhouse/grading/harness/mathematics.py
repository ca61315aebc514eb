"""Comparison of two mathematical answers, in a process that may be killed when it takes too long.

A worker imports this once. The pair below makes it build its LaTeX parser then, not in each of its forks.
"""

import logging

from math_verify import parse, verify

logging.disable()  # it warns that no timeout of its own is set; the sandbox has one


def compare(answer: str, expected: str) -> None:
    """Print whether the two are the same, as `true` or `false`."""
    print("true" if _is_same(answer, expected) else "false")  # noqa: T201 - how a program answers


def _is_same(answer: str, expected: str) -> bool:
    parsed = [parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (expected, answer)]
    return bool(verify(parsed[0], parsed[1], timeout_seconds=None))


_is_same("\\frac{1}{2}x + \\text{a}", "\\frac{x}{2} + \\text{a}")
