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
    """How long the blocks of a text file are; the larger the file, the longer."""
    return max(_BLOCK_BYTES, -(-num_bytes // _MAX_BLOCKS))


class LineRows:
    """JSON Lines: block k holds the lines that begin in its stretch of bytes. Opening it only counts lines."""

    columns: Sequence[str] | None = None

    def __init__(self, open_file: OpenFile, place: Callable[[int], str]) -> None:
        """`place` is what messages call a line, counted from 1."""
        self._open, self._place = open_file, place
        with open_file() as file:
            self.num_bytes = file.seek(0, os.SEEK_END)
            self._block_bytes = block_bytes(self.num_bytes)
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
