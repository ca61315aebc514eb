"""Algebra on two mathematical answers, in a process that may be killed when it takes too long.

A worker imports this once. The pairs compared then let it build its LaTeX parser, and import the parts of sympy that
most comparisons need, before it forks: 0.1 to 0.5 s that each comparison would take otherwise.
"""

import dataclasses
import logging

from math_verify import LatexExtractionConfig, parse, verify

from .extraction import is_same_answer

logging.disable()  # it warns that no timeout of its own is set; the sandbox has one

_WARM_UP = (
    ("\\frac{1}{2}x + \\text{a}", "\\frac{x}{2} + \\text{a}"),
    ("10", "8n^2+4n+1"),
    ("331", "\\left[ \\frac{\\pi^2}{8}, \\frac{5 \\pi^2}{4} \\right]"),
    ("x^8 + x^7 - 1", "(x-1)(x+1)^7"),
    ("\\begin{pmatrix} 1/5 \\\\ -18/5 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"),
    ("\\{1,2\\}", "\\{2,3\\}"),
    ("(1,\\infty)", "x>1"),
    ("\\frac{3\\sqrt{3}}{4}", "\\cot x"),
    ("4.5\\%", "\\sqrt{2}"),
    ("1+274i", "40_9"),
)


# Without the library's units, which take the `t` of `5t` for one, and its search for a number in what it cannot parse.
_NOTATION = LatexExtractionConfig(
    try_extract_without_anchor=False,
    boxed_match_priority=0,
    normalization_config=dataclasses.replace(LatexExtractionConfig().normalization_config, units=False),
)


def compare(answer: str, expected: str) -> None:
    """Print whether the two are the same, as `true` or `false`."""
    print("true" if is_same_answer(answer, expected, _is_equal) else "false")  # noqa: T201 - how a program answers


def _is_equal(answer: str, expected: str) -> bool:
    ours, theirs = (
        parse(f"\\boxed{{{text}}}", [_NOTATION], fallback_mode="no_fallback", parsing_timeout=None)
        for text in (answer, expected)
    )
    return bool(verify(theirs, ours, allow_set_relation_comp=True, timeout_seconds=None))


for _answer, _expected in _WARM_UP:
    _is_equal(_answer, _expected)
