"""Rows of text files that are read in blocks of bytes: JSON Lines, plain lines, and CSV with its quoted line breaks.

Legend: K blocks.
"""

import csv
import io
import os
from collections.abc import Callable, Sequence
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cookhouse.data.sources.store import MAX_LINE_BYTES, RawRow
from cookhouse.errors import InputError

_BLOCK_BYTES = 64 * 2**10
_MAX_BLOCKS = 2**16
"""Larger files have larger blocks, so that what is kept of each stays small."""
_BOM = b"\xef\xbb\xbf"

OpenFile: TypeAlias = Callable[[], BinaryIO]
"""Opens the file anew, for one reading."""


class LineRows:
    """JSON Lines: block k holds the lines that begin in its stretch of bytes. Opening it only counts lines."""

    columns: Sequence[str] | None = None

    def __init__(self, open_file: OpenFile, place: Callable[[int], str]) -> None:
        """`place` is what messages call a line, counted from 1."""
        self._open, self._place = open_file, place
        with open_file() as file:
            self.num_bytes = file.seek(0, os.SEEK_END)
            self._block_bytes = max(_BLOCK_BYTES, -(-self.num_bytes // _MAX_BLOCKS))
            self.block_rows = self._count_lines(file)
        self._first_K = np.cumsum(self.block_rows) - self.block_rows

    def read(self, block: int) -> Sequence[RawRow]:
        if not self.block_rows[block]:
            return []
        start = block * self._block_bytes
        with self._open() as file:
            file.seek(max(start - 1, 0))  # the byte before tells whether a line begins with the block
            content = file.read(self._block_bytes + (start > 0))
            if not content.endswith(b"\n"):
                content += file.readline(MAX_LINE_BYTES + 1)
        lines = (content.partition(b"\n")[2] if start else content.removeprefix(_BOM)).split(b"\n")
        if not lines[-1]:
            lines.pop()
        first = int(self._first_K[block]) + 1
        if len(lines) != self.block_rows[block]:
            raise InputError(f"{self._place(first)}: the file has changed while it was read; leave it as it is")
        return [RawRow(place=self._place(number), content=line) for number, line in enumerate(lines, start=first)]

    def _count_lines(self, file: BinaryIO) -> NDArray[np.int64]:
        """Lines that begin in each block: one after each line break but a last one."""
        file.seek(0)
        counts, begins = [], 1
        while content := file.read(self._block_bytes):
            ends = content.endswith(b"\n")
            counts.append(content.count(b"\n") - ends + begins)
            begins = int(ends)
        return np.array(counts, dtype=np.int64)


class PromptLines:
    """Plain text: each line is a prompt, without the spaces around it. Blank lines are none."""

    columns: Sequence[str] | None = ("prompt",)

    def __init__(self, open_file: OpenFile, place: Callable[[int], str]) -> None:
        """As of `LineRows`."""
        self._lines = LineRows(open_file, place)
        self.block_rows = self._lines.block_rows
        self.num_bytes = self._lines.num_bytes

    def read(self, block: int) -> Sequence[RawRow]:
        return [RawRow(place=row.place, content=_as_prompt(row.content)) for row in self._lines.read(block)]


def _as_prompt(line: object) -> object:
    assert isinstance(line, bytes)
    if len(line) > MAX_LINE_BYTES:
        return InputError(f"the line is longer than {MAX_LINE_BYTES:,} bytes; split the prompt")
    try:
        prompt = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        return InputError(f"not UTF-8 at byte {error.start}; save the file as UTF-8")
    return {"prompt": prompt} if prompt else None


class CsvRows:
    """CSV or TSV with a header of field names. Records may hold quoted line breaks; a quote in one is doubled."""

    def __init__(self, open_file: OpenFile, name: str, delimiter: str) -> None:
        self._open, self._name, self._delimiter = open_file, name, delimiter
        with open_file() as file:
            self.num_bytes = file.seek(0, os.SEEK_END)
            starts, counts = self._find_records(file)
        if not counts:
            raise InputError(f"{name} is empty; its first line must name the fields")
        self._starts = [*starts, self.num_bytes]
        self.block_rows = np.array(counts, dtype=np.int64)
        self.columns: Sequence[str] = self._header()
        self.block_rows[0] -= 1
        self._first_K = np.cumsum(self.block_rows) - self.block_rows

    def read(self, block: int) -> Sequence[RawRow]:
        records = self._records(block)[1 if block == 0 else 0 :]
        first = int(self._first_K[block]) + 1
        return [
            RawRow(place=f"{self._name} row {number}", content=self._row(cells))
            for number, cells in enumerate(records, start=first)
        ]

    def _row(self, cells: Sequence[str]) -> object:
        if not cells:
            return None
        if len(cells) != len(self.columns):
            return InputError(
                f"{len(cells)} cells, and the header names {len(self.columns)} fields; quote what it holds"
            )
        return dict(zip(self.columns, cells, strict=True))

    def _records(self, block: int) -> list[list[str]]:
        start, end = self._starts[block : block + 2]
        with self._open() as file:
            file.seek(start)
            content = file.read(end - start)
        try:
            text = content.decode("utf-8-sig" if start == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self._name}: not UTF-8 at byte {start + error.start:,}; save the file as UTF-8"
            ) from error
        csv.field_size_limit(MAX_LINE_BYTES)
        try:
            return list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            raise InputError(f"{self._name}: not CSV after byte {start:,}: {error}") from error

    def _header(self) -> list[str]:
        names = self._records(0)[0]
        if not names or not all(name.strip() for name in names) or len(set(names)) < len(names):
            raise InputError(
                f"{self._name} has no header: its first line must name each field once, and it is "
                f"{', '.join(map(repr, names))[:200]}"
            )
        return names

    def _find_records(self, file: BinaryIO) -> tuple[list[int], list[int]]:
        """Where the first record of each block begins, and how many begin in the block, the header among them."""
        block_bytes = max(_BLOCK_BYTES, -(-self.num_bytes // _MAX_BLOCKS))
        starts, counts = [], []
        offset, num_quotes, begins = 0, 0, True
        file.seek(0)
        while content := file.read(block_bytes):
            bytes_T = np.frombuffer(content, dtype=np.uint8)
            quotes_T = np.cumsum(bytes_T == ord('"')) + num_quotes
            ends = np.flatnonzero((bytes_T == ord("\n")) & (quotes_T % 2 == 0)) + 1  # a break between quotes ends none
            begun = [*([0] if begins else []), *ends[ends < len(content)].tolist()]
            if begun:
                starts.append(offset + begun[0])
                counts.append(len(begun))
            begins = bool(ends.size) and int(ends[-1]) == len(content)
            num_quotes = int(quotes_T[-1])
            offset += len(content)
        if num_quotes % 2:
            raise InputError(f"{self._name}: a quote is opened and never closed; double the quotes within a cell")
        return starts, counts
