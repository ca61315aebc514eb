"""Grading of mathematical answers: notation and numbers first, then `math-verify` in a process that can be killed."""

import contextlib
import functools
import re

from cookhouse.grading.harness import harness_modules
from cookhouse.grading.harness.extraction import is_same_answer
from cookhouse.grading.sandbox import ExecutionOutcome, Limits, LocalSandbox, Program

_HARNESS = ("numerals", "spelling", "extraction", "mathematics")
_NUM_WORKERS = 4  # about 80 MB each
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*(?P<brace>\{)?")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BOXED_TOKEN = re.compile(r"(?:\\[A-Za-z]+\s*(?:\{[^{}]*\})+|[^\s$])+")
_MAX_CHARACTERS = 2000  # longer answers are not answers; parsing them would only use up the time


async def grade_math(answer: str, expected: str, *, timeout_seconds: float = 5.0) -> bool:
    r"""True if an answer equals the expected one: as text, as a number, or by algebra (`\frac12` and 0.5, x+1 and 1+x).

    Where a plain number is expected, the answer must be one: a fraction, decimal, mixed number, percentage or power of
    ten, with or without `x =`, a unit or a currency, but not an expression such as `4 + 1`. Where both sides name a
    unit it must be the same; where one does, or one is a percentage and the other its number of percent, the number
    decides. Tuples, intervals and matrices keep their order; sets and lists have none.

    Both may be whole texts with `\boxed{...}` or a last line `#### ...`, or the bare answer. What takes longer than
    `timeout_seconds` to compare is not equal. Raises ServiceError if the worker processes cannot run.
    """
    ours, theirs = (extract_math_answer(text) or text.strip() for text in (answer, expected))
    if not ours or not theirs or len(ours) > _MAX_CHARACTERS:
        return False
    with contextlib.suppress(_AlgebraNeeded):
        return is_same_answer(ours, theirs, _refer)
    source = f"import harness.mathematics as m\nm.compare({ours!r}, {theirs!r})\n"
    limits = Limits(wall_seconds=timeout_seconds)
    execution = await _sandbox().run(Program(source=source, modules=harness_modules(*_HARNESS), limits=limits))
    return execution.outcome is ExecutionOutcome.OK and execution.stdout == b"true\n"


def extract_math_answer(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` or `\fbox{...}`, or else what follows the last `####`; None if there is
    neither. `\boxed 7` boxes what stands before the next blank.
    """
    boxes = list(_BOX.finditer(text))
    if boxes:
        if boxes[-1]["brace"]:
            return _balanced(text, boxes[-1].end())
        return _token(text[boxes[-1].end() :])
    _, mark, after = text.rpartition("####")
    lines = after.strip().splitlines()
    return lines[0].strip() if mark and lines else None


def _balanced(text: str, start: int) -> str | None:
    """Up to the brace that closes the one before `start`; None if none does."""
    depth = 1
    for mark in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth == 0:
            return text[start : mark.start()].strip()
    return None


def _token(text: str) -> str | None:
    """Token that a box without braces is put around: a command with its arguments, or all up to a blank."""
    match = _BOXED_TOKEN.match(text)
    return match[0].rstrip(".,;:") or None if match else None


class _AlgebraNeeded(Exception):  # noqa: N818 - not an error
    """Notation and numbers do not settle it."""


def _refer(*_: str) -> bool:
    raise _AlgebraNeeded


@functools.cache
def _sandbox() -> LocalSandbox:
    """Workers with `math-verify` loaded, for no model's code; apart from those for code, which have no use for it."""
    modules = harness_modules(*_HARNESS)
    return LocalSandbox(num_workers=_NUM_WORKERS, is_trusted=True, preload=("math_verify",), modules=modules)
