"""Rows of text files that are read in blocks of bytes: JSON Lines and plain lines.

Legend: K blocks.
"""

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
