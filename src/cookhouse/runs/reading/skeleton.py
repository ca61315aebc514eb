"""A line of JSON whose long arrays of numbers and long texts stay in the file, to be read by range.

What is left is small, however long the transcript: rewards, names, and where the tokens lie. It takes one pass of a
regular expression, which is seven times as fast as parsing all of it.
"""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cookhouse.errors import InputError
from cookhouse.runs.reading.lines import read_bytes

MAX_LINE_BYTES = 512 << 20
"""Of a line that is looked into."""
MAX_SKELETON_BYTES = 32 << 20
"""Of what is left of it."""
_LONG_BYTES = 400
"""A number array or a text is left in the file from here on."""
_BLOCK_BYTES = 1 << 16

# One that never ends is taken to the end of the line: to look for another at each quote in it takes time in its square.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_NUMBERS = rb"\[[-+0-9.eE,NaInfity\s]{%d,}\]" % _LONG_BYTES
_PART = re.compile(_STRING + rb"|" + _NUMBERS)
_CUT_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_KEY = secrets.token_hex()
"""Marks what stays in the file. Nobody who writes a line can know it."""


@dataclass(frozen=True, slots=True)
class FarNumbers:
    """An array of numbers in a file, from bracket to bracket."""

    path: Path
    start: int
    end: int
    count: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class FarText:
    """A text in a file, from quote to quote."""

    path: Path
    start: int
    end: int


Numbers: TypeAlias = Sequence[float] | FarNumbers
Text: TypeAlias = str | FarText


def read_skeleton(path: Path, start: int, end: int) -> Any:
    """The JSON value of a line, with a `FarNumbers` or `FarText` for each array of numbers or text that is long.

    Raises:
        InputError: it is no JSON, or so long or so finely divided that it would not fit into memory.
        OSError: the file cannot be read.
    """
    if end - start > MAX_LINE_BYTES:
        raise InputError(f"{path}: a line has {end - start:,} bytes; a page shows those of at most {MAX_LINE_BYTES:,}")
    line = read_bytes(path, start, end)
    pieces, size, place = [], 0, 0
    for found in _PART.finditer(line):
        if found.end() - found.start() < _LONG_BYTES or line[found.end() : found.end() + 1] == b":":
            continue
        is_text = line[found.start()] == ord('"')
        count = 0 if is_text else line.count(b",", *found.span()) + 1
        marker = json.dumps({_KEY: [start + found.start(), start + found.end(), count]}).encode()
        pieces += [line[place : found.start()], marker]
        size += found.start() - place + len(marker)
        place = found.end()
    if size + len(line) - place > MAX_SKELETON_BYTES:
        raise InputError(
            f"{path}: a line has {size + len(line) - place:,} bytes besides its tokens and texts; a page shows those "
            f"of at most {MAX_SKELETON_BYTES:,}"
        )
    text = b"".join([*pieces, line[place:]])
    try:
        return json.loads(text, object_hook=lambda value: _far(path, value))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} has a line at byte {start:,} that is not JSON: {error}") from error


def count_numbers(numbers: Numbers) -> int:
    """Number of numbers."""
    return numbers.count if isinstance(numbers, FarNumbers) else len(numbers)


def read_numbers(numbers: Numbers, first: int = 0, count: int | None = None) -> list[Any]:
    """Some of them: `count` from `first`, as far as there are so many. NaN and infinity are read as such.

    Raises:
        InputError: they are no numbers.
        OSError: the file cannot be read.
    """
    last = count_numbers(numbers) if count is None else min(first + count, count_numbers(numbers))
    if not isinstance(numbers, FarNumbers):
        return list(numbers[first:last])
    if first >= last:
        return []
    begin = _begin_of(numbers, first)
    end = numbers.end if last == numbers.count else _begin_of(numbers, last)
    part = read_bytes(numbers.path, begin, end - 1)
    return list(_parsed(numbers.path, begin, b"[" + part + b"]"))


def read_text(text: Text, max_characters: int) -> tuple[str, int]:
    """Its beginning, and how many bytes of the file were left out; 0: it is whole.

    Raises:
        InputError: it is no JSON.
        OSError: the file cannot be read.
    """
    if not isinstance(text, FarText):
        return text[:max_characters], len(text[max_characters:].encode(errors="replace"))
    # An escaped character takes up to six bytes, one beyond the basic plane twelve.
    end = min(text.end - 1, text.start + 1 + 12 * max_characters)
    part = read_bytes(text.path, text.start + 1, end)
    if end < text.end - 1:
        part = _whole(part)
    whole = str(_parsed(text.path, text.start, b'"' + part + b'"'))
    shown = whole[:max_characters]
    if shown == whole and end == text.end - 1:
        return whole, 0
    return shown, text.end - 1 - end + len(whole[max_characters:].encode(errors="replace"))


def _whole(part: bytes) -> bytes:
    """Without the first half of an escape, or of a character, at its end."""
    part = part.decode(errors="ignore").encode()
    if (cut := _CUT_ESCAPE.search(part)) and _is_open(part, cut.start()):
        part = part[: cut.start()]
    return part


def _is_open(part: bytes, place: int) -> bool:
    """True if the backslash at a place begins an escape: it is not the second of a pair."""
    before = len(part[:place]) - len(part[:place].rstrip(b"\\"))
    return before % 2 == 0


def _far(path: Path, value: dict[str, Any]) -> Any:
    if _KEY not in value:
        return value
    start, end, count = value[_KEY]
    return FarNumbers(path, start, end, count) if count else FarText(path, start, end)


def _parsed(path: Path, start: int, text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} cannot be read from byte {start:,} on: {error}") from error


def _begin_of(numbers: FarNumbers, index: int) -> int:
    """Beginning of the number with an index."""
    if index == 0:
        return numbers.start + 1
    offset = numbers.start + 1
    while block := read_bytes(numbers.path, offset, min(offset + _BLOCK_BYTES, numbers.end - 1)):
        commas = block.count(b",")
        if commas >= index:
            place = -1
            for _ in range(index):
                place = block.index(b",", place + 1)
            return offset + place + 1
        index -= commas
        offset += len(block)
    raise InputError(f"{numbers.path} has become shorter while it was read; read it again")
