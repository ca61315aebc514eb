"""Matches of an answer with what was expected, by plain rules. None of them raises for what a model wrote."""

import functools
import re
from decimal import Decimal, InvalidOperation

from cookhouse.errors import InputError
from cookhouse.grading.math import extract_math_answer
from cookhouse.grading.sandbox import ExecutionOutcome, Limits, LocalSandbox, Program

MAX_PATTERN_CHARACTERS = 1000
_MAX_CHARACTERS = 100_000
"""Of an answer that is looked at; its end is."""
_SECONDS = 2.0
_NUM_WORKERS = 2
_NUMBER = re.compile(r"(?:(?<![\w.])[-+])?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3}(?!\d))?")


def is_text(answer: str, expected: str, *, ignore_case: bool = False) -> bool:
    """Equal up to white space at the ends."""
    return _plain(answer, ignore_case) == _plain(expected, ignore_case)


def contains_text(answer: str, expected: str, *, ignore_case: bool = False) -> bool:
    """True if it stands anywhere in the answer."""
    return _plain(expected, ignore_case) in _plain(answer, ignore_case)


def number_in(text: str) -> Decimal | None:
    r"""The number of a text: that in the last `\boxed{...}` or after the last `####`, else the last one."""
    end = text[-_MAX_CHARACTERS:].replace("−", "-")
    found = _NUMBER.findall(extract_math_answer(end) or end)
    try:
        return Decimal(found[-1].replace(",", "")) if found else None
    except InvalidOperation:
        return None


def check_pattern(pattern: str) -> None:
    """Raises `InputError` if it is no regular expression, or longer than one of a person's."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise InputError(f"pattern has {len(pattern):,} characters; at most {MAX_PATTERN_CHARACTERS:,} are read")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"pattern is {pattern[:80]!r}, which is no regular expression: {error}") from error


async def has_pattern(answer: str, pattern: str) -> bool | None:
    """True if a regular expression is found anywhere in an answer. It runs in a process that ends after two seconds:
    None then, since nobody can tell. Raises `ServiceError` if the worker processes cannot run.
    """
    source = f"import re\nprint(re.search({pattern!r}, {answer[-_MAX_CHARACTERS:]!r}) is not None)\n"
    execution = await _sandbox().run(Program(source=source, limits=Limits(wall_seconds=_SECONDS)))
    return execution.stdout == b"True\n" if execution.outcome is ExecutionOutcome.OK else None


def _plain(text: str, ignore_case: bool) -> str:
    return text.strip().casefold() if ignore_case else text.strip()


@functools.cache
def _sandbox() -> LocalSandbox:
    """Workers that search for patterns, and run no model's code."""
    return LocalSandbox(num_workers=_NUM_WORKERS, is_trusted=True)
