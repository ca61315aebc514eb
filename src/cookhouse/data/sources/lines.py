"""Rows of text files that are read in blocks of bytes: JSON Lines, plain lines, CSV and TSV.

Of CSV one reader, Python's `csv`, says what a record is: for counting, for where blocks begin, for the numbers of rows
and for what these hold.

Legend: K blocks.
"""

import csv
import io
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cookhouse.data.sources.dialect import not_utf8
from cookhouse.data.sources.store import MAX_LINE_BYTES, RawRow
from cookhouse.errors import InputError

_BLOCK_BYTES = 64 * 2**10
_MAX_BLOCKS = 2**16
"""Larger files have larger blocks, so that what is kept of each stays small."""
_BOM = b"\xef\xbb\xbf"

OpenFile: TypeAlias = Callable[[], BinaryIO]
"""Opens the file anew, for one reading."""
_BOM_LETTERS = "\xef\xbb\xbf"
"""As it is read byte by byte."""
_WAY_OUT = "put a cell that begins with a quote, or holds a line break, between quotes, and double those within it"
_log = logging.getLogger(__name__)


def block_bytes(num_bytes: int) -> int:
    """Length of the blocks of a text file; the larger the file, the longer."""
    return max(_BLOCK_BYTES, -(-num_bytes // _MAX_BLOCKS))


class LineRows:
    """JSON Lines: block k holds the rows that begin in its stretch of bytes. A blank line is none. Opening it only
    counts.
    """

    columns: Sequence[str] | None = None

    def __init__(self, open_file: OpenFile, place: Callable[[int], str]) -> None:
        """`place` is what messages call a line, counted from 1."""
        self._open, self._place = open_file, place
        with open_file() as file:
            self.num_bytes = file.seek(0, os.SEEK_END)
            self._block_bytes = block_bytes(self.num_bytes)
            self._lines_K, self.block_rows = self._count(file)
        self._first_K = np.cumsum(self._lines_K) - self._lines_K

    def read(self, block: int) -> Sequence[RawRow]:
        if not self.block_rows[block]:
            return []
        start = block * self._block_bytes
        with self._open() as file:
            file.seek(max(start - 1, 0))  # the byte before shows whether a line begins with the block
            content = file.read(self._block_bytes + (start > 0))
            if not content.endswith(b"\n"):
                content += file.readline(MAX_LINE_BYTES + 1)
        lines = (content.partition(b"\n")[2] if start else content.removeprefix(_BOM)).split(b"\n")
        if not lines[-1]:
            lines.pop()
        first = int(self._first_K[block]) + 1
        filled = [(number, line) for number, line in enumerate(lines, start=first) if line.strip()]
        if (len(lines), len(filled)) != (self._lines_K[block], self.block_rows[block]):
            raise InputError(f"{self._place(first)}: the file has changed while it was read; leave it as it is")
        return [RawRow(place=self._place(number), content=line) for number, line in filled]

    def _count(self, file: BinaryIO) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lines that begin in each block, one after each line break but a last one; and those that are not blank."""
        file.seek(0)
        lines: list[int] = []
        filled: list[int] = []
        begun: int | None = None
        """The block in which the line begins that is being read."""
        is_filled = False
        while content := file.read(self._block_bytes):
            block = len(lines)
            head, *others = (content if block else content.removeprefix(_BOM)).split(b"\n")
            lines.append(0)
            filled.append(0)
            if begun is None:
                begun, is_filled = block, False
                lines[block] += 1
            if not is_filled and head.strip():
                is_filled = True
                filled[begun] += 1
            if others:
                last = others.pop()
                lines[block] += len(others) + bool(last)
                filled[block] += sum(map(bool, map(bytes.strip, others)))
                begun, is_filled = (block if last else None), bool(last.strip())
                filled[block] += is_filled
        return np.array(lines, dtype=np.int64), np.array(filled, dtype=np.int64)


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


class Quotes:
    """Sees every record that has quotes.

    A cell between quotes may hold line breaks. Where each of its lines would also be a record by itself, the quotes may
    just as well be letters, as in `5" pipe`: one at the beginning of a cell then takes in all lines up to the next one.
    Such a cell is taken as it stands where others show that the file quotes what it has to, and no lone one is there.
    """

    def __init__(self, name: str, delimiter: str, num_cells: int) -> None:
        self._name, self._delimiter, self._num_cells = name, delimiter, num_cells
        self._lone: int | None = None
        """The first line with a quote that quotes nothing."""
        self._doubtful: tuple[int, int, int] | None = None
        """The first record that may be several: its line, how many it takes, and the most that any such one takes."""
        self._quotes_well = False

    def see(self, cells: Sequence[str], lines: Sequence[str], first_line: int) -> None:
        """One record: its cells, and the lines that it was read from."""
        written = sum(line.count('"') for line in lines)
        kept = sum(cell.count('"') for cell in cells)
        if written % 2 or (written and written == kept):
            self._lone = self._lone or first_line
        elif len(lines) == 1 or not self._are_records(lines):
            # What is left of the quotes where cells are quoted: those that were doubled, once.
            self._quotes_well |= len(lines) == 1 or self._num_cells > 1
        if len(lines) > 1 and self._are_records(lines):
            line, taken, most = self._doubtful or (first_line, len(lines), 0)
            self._doubtful = (line, taken, max(most, len(lines)))

    def check(self) -> None:
        """Raises `InputError` if records could be told apart in two ways, with the line."""
        if self._doubtful is None:
            return
        line, taken, most = self._doubtful
        is_plain = most > 2 and self._num_cells > 1 and not self._quotes_well
        if self._lone is None and not is_plain:
            return
        lone = f", and line {self._lone:,} has a quote that quotes nothing" if self._lone is not None else ""
        raise InputError(
            f"{self._name}: line {line:,} can be read in two ways: its quotes make one record of {taken:,} lines, each "
            f"of which is one without them{lone}; put every cell that holds a quote between quotes and double it "
            "there, or save the rows as JSON Lines"
        )

    def _are_records(self, lines: Sequence[str]) -> bool:
        return all(line.strip("\r\n") and line.count(self._delimiter) == self._num_cells - 1 for line in lines)


class CsvRows:
    """CSV or TSV with a header of field names. A quote opens a cell only as its first character, and is doubled within
    such a cell, which may hold line breaks; elsewhere it is a character as any other. A blank line is no record.
    """

    def __init__(self, open_file: OpenFile, name: str, delimiter: str) -> None:
        """Reads the file once, to find where records begin.

        Raises:
            InputError: it is empty or has no header, quotes are not closed, or records could be told apart in two ways.
        """
        self._open, self._name, self._delimiter = open_file, name, delimiter
        with open_file() as file:
            self.num_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            text = io.TextIOWrapper(file, encoding="latin-1", newline="")
            try:
                starts, counts = self._find_records(text)
            finally:
                text.detach()
        if not counts:
            raise InputError(f"{name} is empty; its first line must name the fields")
        self._starts = [*starts, self.num_bytes]
        self._counts = counts
        self.block_rows = np.array(counts, dtype=np.int64)
        self._header = self._read_header()
        # pandas writes the index of a table so, by default.
        self._first_cell = int(len(self._header) > 1 and not self._header[0].strip())
        self.columns: Sequence[str] = self._header[self._first_cell :]
        self._check_header()
        if self._first_cell:
            _log.warning("%s: its first column has no name, as an index of pandas, and is left out", name)
        self.block_rows[0] -= 1
        self._first_K = np.cumsum(self.block_rows) - self.block_rows

    def read(self, block: int) -> Sequence[RawRow]:
        records = self._records(block)
        first = int(self._first_K[block]) + 1
        if len(records) != self._counts[block]:
            raise InputError(f"{self._name} row {first}: the file has changed while it was read; leave it as it is")
        return [
            RawRow(place=f"{self._name} row {number}", content=self._row(cells))
            for number, cells in enumerate(records[1 if block == 0 else 0 :], start=first)
        ]

    def _row(self, cells: Sequence[str]) -> object:
        if len(cells) != len(self._header):
            return InputError(
                f"{len(cells)} cells, and the header names {len(self._header)} fields; quote what it holds"
            )
        return dict(zip(self.columns, cells[self._first_cell :], strict=True))

    def _records(self, block: int) -> list[list[str]]:
        start, end = self._starts[block : block + 2]
        with self._open() as file:
            file.seek(start)
            content = file.read(end - start)
        try:
            text = content.decode("utf-8-sig" if start == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self._name}: not UTF-8 at byte {start + error.start:,}", way_out=not_utf8(self._name, content)
            ) from error
        csv.field_size_limit(MAX_LINE_BYTES)
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True)
            return [cells for cells in reader if cells]
        except csv.Error as error:
            raise InputError(f"{self._name}: not CSV after byte {start:,}: {error}") from error

    def _read_header(self) -> list[str]:
        return self._records(0)[0]

    def _check_header(self) -> None:
        names = self.columns
        if not names or not all(name.strip() for name in names) or len(set(names)) < len(names):
            raise InputError(
                f"{self._name} has no header: its first line must name each field once, and it is "
                f"{', '.join(map(repr, self._header))[:200]}"
            )

    def _find_records(self, text: TextIO) -> tuple[list[int], list[int]]:
        """Start of the first record of each block, and the number that begin in the block, the header among them."""
        length = block_bytes(self.num_bytes)
        starts: list[int] = []
        counts: list[int] = []
        offset, line, last_block = 0, 1, -1
        quotes: Quotes | None = None
        for cells, lines in self._iter_records(text):
            if cells:
                if offset // length != last_block:
                    last_block = offset // length
                    starts.append(offset)
                    counts.append(0)
                counts[-1] += 1
                quotes = quotes or Quotes(self._name, self._delimiter, len(cells))
                if len(lines) > 1 or '"' in lines[0]:
                    quotes.see(cells, lines, line)
            offset += sum(map(len, lines))
            line += len(lines)
        if quotes is not None:
            quotes.check()
        return starts, counts

    def _iter_records(self, text: TextIO) -> Iterator[tuple[list[str], list[str]]]:
        """Each record, and the lines that it was read from, a character for each byte."""
        lines: list[str] = []

        def kept() -> Iterator[str]:
            for line in text:
                lines.append(line)
                # A mark at the beginning of the file is no part of its first cell, which may begin with a quote.
                yield line.removeprefix(_BOM_LETTERS) if len(lines) == 1 and reader.line_num == 0 else line

        csv.field_size_limit(MAX_LINE_BYTES)
        reader = csv.reader(kept(), delimiter=self._delimiter, strict=True)
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                first = reader.line_num - len(lines) + 1
                reason = "a quote is opened and never closed" if "end of data" in str(error) else error
                raise InputError(f"{self._name}: line {first:,} is not CSV: {reason}; {_WAY_OUT}") from error
            if cells is None:
                return
            yield cells, lines
            lines.clear()
