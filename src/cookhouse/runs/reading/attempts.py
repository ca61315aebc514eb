"""An evaluation's items on disk: what each answer was worth, and where the texts lie, which may be many and long."""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cookhouse.errors import InputError
from cookhouse.evals import Grade
from cookhouse.evals.benchmarks.attempts import Key
from cookhouse.runs.names import ATTEMPT_ANSWERS_FILE, ATTEMPT_GRADES_FILE, ATTEMPT_QUESTIONS_FILE
from cookhouse.runs.reading.lines import Lines, find_lines, read_bytes
from cookhouse.telemetry import as_float

MAX_LINE_BYTES: Final = 1 << 24
"""Of a line that is read whole; a longer one is named."""
_HEAD: Final = re.compile(rb'\{"benchmark": ("(?:[^"\\]|\\.)*"), "item": (\d{1,15}), "')
_HEAD_BYTES: Final = 1 << 10
_MAX_PROBLEMS: Final = 20

Span = tuple[int, int]
"""Start and end of a line in its file."""


@dataclass(frozen=True, kw_only=True)
class AskedItem:
    """An item as its line has it, without its texts."""

    span: Span
    digest: bytes
    """Of the line: items are the same where it is."""
    group: str | None


@dataclass(frozen=True, kw_only=True)
class AttemptIndex:
    """Attempts of an evaluation so far."""

    grades: Mapping[Key, Sequence[Grade]] = field(default_factory=dict)
    answers: Mapping[Key, Span] = field(default_factory=dict)
    questions: Mapping[Key, AskedItem] = field(default_factory=dict)
    problems: Sequence[str] = ()
    """Lines that cannot be read, and why."""
    lines: Mapping[str, Lines] = field(default_factory=dict)
    """By file, as far as these have been read."""


def attempt_row(line: bytes) -> tuple[Key, list[Mapping[str, Any]]]:
    """A line of answers or grades: whose, and the values of each sample. Raises what shows that it is none:
    `ValueError`, `KeyError`, `TypeError`.
    """
    row = json.loads(line)
    return (str(row["benchmark"]), int(row["item"])), [dict(value) for value in row["values"]]


def index_attempts(folder: Path, known: AttemptIndex | None = None) -> AttemptIndex:
    """The items of an evaluation; with `known` only what was written since is read."""
    known = known or AttemptIndex()
    grades, answers, questions = dict(known.grades), dict(known.answers), dict(known.questions)
    readers: dict[str, Callable[[Span, bytes], None]] = {
        ATTEMPT_QUESTIONS_FILE: lambda span, line: questions.update([_asked(span, line)]),
        ATTEMPT_ANSWERS_FILE: lambda span, line: answers.update([(_key(line), span)]),
        ATTEMPT_GRADES_FILE: lambda _, line: grades.update([_graded(line)]),
    }
    found = {name: find_lines(folder / name, known.lines.get(name)) for name in readers}
    if all(found[name] is known.lines.get(name) for name in readers):
        return known
    if any(not _goes_on(known.lines.get(name), found[name]) for name in readers):
        return index_attempts(folder)  # one was replaced, as by a resume
    problems = list(known.problems)
    for name, take in readers.items():
        head = None if name != ATTEMPT_ANSWERS_FILE else _HEAD_BYTES
        for number, span, line in _new_lines(folder / name, known.lines.get(name), found[name], head):
            try:
                take(span, line)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                problems.append(f"{name}, line {number}, is no line of an evaluation: {error!r:.200}")
    return AttemptIndex(
        grades=grades, answers=answers, questions=questions, problems=problems[:_MAX_PROBLEMS], lines=found
    )


def read_line(path: Path, span: Span) -> bytes:
    """A whole line.

    Raises:
        InputError: it is too long, or the file is gone.
    """
    start, end = span
    if end - start > MAX_LINE_BYTES:
        raise InputError(f"a line of {path.name} has {end - start:,} bytes; up to {MAX_LINE_BYTES:,} are read")
    try:
        return read_bytes(path, start, end)
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}") from error


def _goes_on(known: Lines | None, found: Lines) -> bool:
    return known is None or (known.inode in (0, found.inode) and found.starts[: len(known.starts)] == known.starts)


def _new_lines(path: Path, known: Lines | None, found: Lines, head: int | None) -> Iterator[tuple[int, Span, bytes]]:
    """Number, place and bytes of each line that is not known; of a long one its head alone."""
    first = 0 if known is None else len(known)
    if first == len(found):
        return
    with path.open("rb") as file:
        for index in range(first, len(found)):
            start, end = found.span(index)
            length = min(end - start, MAX_LINE_BYTES if head is None else head)
            yield index + 1, (start, end), os.pread(file.fileno(), length, start)


def _key(head: bytes) -> Key:
    found = _HEAD.match(head)
    if found is None:
        raise ValueError("it does not begin with a benchmark and an item")
    return json.loads(found[1]), int(found[2])


def _graded(line: bytes) -> tuple[Key, Sequence[Grade]]:
    key, values = attempt_row(line)
    grades = [Grade(**value) for value in values]
    if not grades or not all(
        isinstance(each.correct, int | float) and math.isfinite(as_float(each.correct)) for each in grades
    ):
        raise ValueError("correct is a number for each answer")
    return key, grades


def _asked(span: Span, line: bytes) -> tuple[Key, AskedItem]:
    row = json.loads(line)
    group = row.get("group")
    digest = hashlib.blake2b(line, digest_size=12).digest()
    item = AskedItem(span=span, digest=digest, group=None if group is None else str(group))
    return (str(row["benchmark"]), int(row["item"])), item
