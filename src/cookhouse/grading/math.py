"""Grading of mathematical answers: text and numbers first, then `math-verify` in a process that can be killed."""

import fractions
import functools
import re

from cookhouse.grading.harness import harness_modules
from cookhouse.grading.sandbox import Limits, LocalSandbox, Outcome, Program

_NUMBER = re.compile(r"[-+]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})(/\d{1,30})?")
_DIGIT_GROUPS = re.compile(r"(?<=\d)(,|\\,|\{,\}|\\!)+(?=\d{3}(?!\d))")
_NOISE = re.compile(r"\\left|\\right|\\[,;:! ]|\$|\s")
_NUM_WORKERS = 4  # about 80 MB each
_MAX_CHARACTERS = 2000  # longer answers are not answers; parsing them would only use up the time


async def grade_math(answer: str, expected: str, *, timeout_seconds: float = 5.0) -> bool:
    r"""Whether an answer equals the expected one: as text, as a number, or by algebra (`\frac12` and 0.5, x+1 and 1+x).

    Both may be whole texts with `\boxed{...}` or a last line `#### ...`, or the bare answer. What takes longer than
    `timeout_seconds` to compare is not equal. Raises ServiceError if the worker processes cannot run.
    """
    ours, theirs = (extract_math_answer(text) or text.strip() for text in (answer, expected))
    quick = _compare_quickly(ours, theirs)
    if quick is not None:
        return quick
    source = f"import harness.mathematics as m\nm.compare({ours!r}, {theirs!r})\n"
    limits = Limits(wall_seconds=timeout_seconds)
    execution = await _sandbox().run(Program(source=source, modules=harness_modules("mathematics"), limits=limits))
    return execution.outcome is Outcome.OK and execution.stdout == b"true\n"


def extract_math_answer(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, or else what follows the last `####`; None if there is neither."""
    start = text.rfind("\\boxed{")
    if start >= 0:
        return _balanced(text, start + len("\\boxed{"))
    _, mark, after = text.rpartition("####")
    lines = after.strip().splitlines()
    return lines[0].strip() if mark and lines else None


def _balanced(text: str, start: int) -> str | None:
    """Up to the brace that closes the one before `start`; None if none does."""
    depth = 1
    for index in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0) if text[index - 1] != "\\" else 0
        if depth == 0:
            return text[start:index].strip()
    return None


def _compare_quickly(ours: str, theirs: str) -> bool | None:
    """None where text and numbers do not settle it."""
    if not ours or not theirs or len(ours) > _MAX_CHARACTERS:
        return False
    left, right = (_NOISE.sub("", _DIGIT_GROUPS.sub("", text)).rstrip(".") for text in (ours, theirs))
    if left == right:
        return True
    if _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
        return _as_number(left) == _as_number(right)
    return None


def _as_number(text: str) -> fractions.Fraction | None:
    numerator, _, denominator = text.partition("/")
    try:
        return fractions.Fraction(numerator) / fractions.Fraction(denominator or 1)
    except ZeroDivisionError:
        return None


@functools.cache
def _sandbox() -> LocalSandbox:
    """Workers with `math-verify` loaded; apart from those for code, which have no use for it."""
    return LocalSandbox(num_workers=_NUM_WORKERS, preload=("math_verify",), modules=harness_modules("mathematics"))
