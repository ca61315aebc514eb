"""Reading data sets: rows in blocks, and the port that opens data sets by id."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cookhouse.errors import InputError

MAX_LINE_BYTES = 16 * 2**20
"""A conversation of a million tokens fits; a file without line breaks is refused before it is in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """A row as it stands in its set, and what messages call it."""

    place: str
    """`file:line` or `NAME row N`."""
    content: object
    """The row; or the bytes of its line of UTF-8 JSON; or an `InputError` where there is none to read; or None, or
    blank bytes, where there is none at all."""

    @property
    def is_blank(self) -> bool:
        return self.content is None or (isinstance(self.content, bytes) and not self.content.strip())

    def value(self) -> object:
        """The row itself. Raises `InputError` as `place: reason`."""
        if isinstance(self.content, InputError):
            raise InputError(f"{self.place}: {self.content}") from self.content
        return _from_line(self.content, self.place) if isinstance(self.content, bytes) else self.content


class Rows(Protocol):
    """The rows of one data set in its own order, in blocks that are read apart: only what is read is in memory.

    The same set has the same blocks each time. Reading is safe from several threads.
    """

    @property
    def block_rows(self) -> NDArray[np.int64]:
        """Rows of each block, blank ones included."""

    @property
    def num_bytes(self) -> int:
        """About what all rows take as they are stored."""

    @property
    def columns(self) -> Sequence[str] | None:
        """The fields that every row has, where the format fixes them."""

    def read(self, block: int) -> Sequence[RawRow]:
        """The rows of a block. Raises `InputError` if they cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSplit:
    """A split of a data set on the hub, or in a folder that is laid out as one. Several configurations are read one
    after the other.
    """

    name: str
    """`owner/name`, or the path of the folder."""
    split: str = "train"
    configs: Sequence[str | None] = (None,)

    def __str__(self) -> str:
        return f"{self.name} ({self.split})"


class DatasetStore(Protocol):
    """Opens data sets by id: a port, which a user's own store may fill."""

    @property
    def synthetic(self) -> bool:
        """True if the rows are made up; each of them then has `synthetic` true."""

    def open(self, split: HubSplit) -> Rows:
        """The rows of a split, the same ones each time.

        Raises:
            InputError: there is no such set or split; the message names it, and where it was looked for.
        """


def num_rows(rows: Rows) -> int:
    """All of them, with those that turn out blank: blank lines of a file are none."""
    return int(rows.block_rows.sum())


def iter_blocks(rows: Rows) -> Iterator[RawRow]:
    """Every row that is not blank, in order, one block in memory at a time."""
    for block in range(len(rows.block_rows)):
        yield from (row for row in rows.read(block) if not row.is_blank)


def _from_line(line: bytes, place: str) -> object:
    if len(line) > MAX_LINE_BYTES:
        raise InputError(f"{place}: the line is longer than {MAX_LINE_BYTES:,} bytes; split the conversation")
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 at byte {error.start}; save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON that can be read: {error}") from error
