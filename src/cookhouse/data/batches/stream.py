"""Data sets whose rows are not all in memory: read, checked and tokenized batch by batch."""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.data.batches.datum import Reduction, shifted_datum
from cookhouse.data.batches.examples import Example, ExampleStatistics, example_statistics
from cookhouse.data.parsing import BadRows, OnBadRow, parse_each
from cookhouse.data.rows.conversations import conversation_of
from cookhouse.data.rows.shapes import Conversation
from cookhouse.data.sources.parts import sampled
from cookhouse.data.sources.store import RawRow, Rows, num_rows
from cookhouse.errors import InputError

MAX_WHOLE_BYTES = 32 * 2**20
"""Larger sets are streamed; smaller ones are read, checked and tokenized as a whole before the first step."""
_WINDOW_BYTES = 8 * 2**20
_SAMPLE_BYTES = 2**20
_SAMPLE_ROWS = 256
_log = logging.getLogger(__name__)


class BlockOrder:
    """The order drawn from `key`."""

    def __init__(self, block_rows: NDArray[np.int64], window_rows: int, key: str) -> None:
        self._key = key
        blocks = list(range(len(block_rows)))
        random.Random(key).shuffle(blocks)
        ends = np.cumsum(block_rows[blocks])
        # A block belongs to the window that its last row falls into, so that none is split.
        window_of = (np.maximum(ends, 1) - 1) // max(window_rows, 1)
        edges = [0, *(np.flatnonzero(np.diff(window_of)) + 1).tolist(), len(blocks)]
        self._blocks_W = [blocks[start:end] for start, end in pairwise(edges)]
        self._ends_W = ends[[edge - 1 for edge in edges[1:]]]

    def blocks(self, window: int) -> Sequence[int]:
        """The blocks of a window, in the order in which its rows are numbered."""
        return self._blocks_W[window]

    def rows(self, window: int, count: int) -> Sequence[int]:
        """The numbers of the window's `count` rows, in their order."""
        rows = list(range(count))
        random.Random(f"{self._key}/{window}").shuffle(rows)
        return rows

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """The places from `start` up to `stop` as stretches of windows: window, and first and last place within."""
        while start < stop:
            window = int(np.searchsorted(self._ends_W, start, side="right"))
            first = int(self._ends_W[window - 1]) if window else 0
            end = min(stop, int(self._ends_W[window]))
            yield window, start - first, end - first
            start = end


Render = Callable[[Conversation], Sequence[Example]]
"""The examples of a conversation. Raises `InputError`, naming it."""


@dataclass(frozen=True, kw_only=True)
class StreamedBatch:
    """Datums, and what there is to say of the rows that they are made of."""

    data_D: Sequence[tinker.Datum]
    statistics: ExampleStatistics
    num_skipped: int
    """Rows that cannot be used and are left out."""


class ShuffledRows:
    """Batches of `batch_size` rows; the last one of an epoch holds what is left. Blank rows make a batch smaller.

    The order of an epoch depends on its number and the seed alone, and a batch is found without those before it.

    Raises:
        InputError: there are no rows, or `batch_size` is below 1.
    """

    def __init__(self, rows: Rows, *, name: str, batch_size: int, seed: int = 0) -> None:
        self.num_rows = num_rows(rows)
        if not self.num_rows:
            raise InputError(f"{name} is empty; it needs at least one row")
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        self.name = name
        self.batch_size = batch_size
        self._rows = rows
        self._seed = seed
        self._window_rows = max(1, _WINDOW_BYTES * self.num_rows // max(rows.num_bytes, 1))
        self._window: tuple[tuple[str, int], Sequence[RawRow]] | None = None
        self.set_epoch(0)

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def set_epoch(self, epoch: int, lap: int = 0) -> None:
        """Order the rows for an epoch, or for a further pass within it."""
        self._key = f"{self._seed}/{epoch}" + (f"/{lap}" if lap else "")
        self._order = BlockOrder(self._rows.block_rows, self._window_rows, self._key)

    def rows_of(self, index: int) -> list[RawRow]:
        """The rows of batch `index` in the present order. Raises `IndexError` outside `range(len(self))`."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        start = index * self.batch_size
        found: list[RawRow] = []
        for window, first, end in self._order.pieces(start, min(start + self.batch_size, self.num_rows)):
            found += self._read(window)[first:end]
        return [row for row in found if not row.is_blank]

    def sampled_rows(self) -> list[RawRow]:
        """Rows that are evenly spaced through the set: some hundreds, of a bounded size."""
        fitting = _SAMPLE_BYTES * self.num_rows // max(self._rows.num_bytes, 1)
        return [*sampled(self._rows, min(max(fitting, _SAMPLE_ROWS // 16), _SAMPLE_ROWS))]

    def _read(self, window: int) -> Sequence[RawRow]:
        """The rows of a window in their order; the last one is kept, since a batch mostly goes on where one ended."""
        key = (self._key, window)
        if self._window is None or self._window[0] != key:
            self._window = None  # before the next one is in memory
            rows = [row for block in self._order.blocks(window) for row in self._rows.read(block)]
            self._window = (key, [rows[index] for index in self._order.rows(window, len(rows))])
        return self._window[1]


class StreamedDataset(ShuffledRows):
    """The examples of conversations.

    Examples without a trained token and rows for which `is_left_out` is true are left out of a batch.
    """

    def __init__(
        self,
        rows: Rows,
        render: Render,
        *,
        name: str,
        batch_size: int,
        reduction: Reduction = "none",
        seed: int = 0,
        on_bad_row: OnBadRow = "stop",
        is_left_out: Callable[[Conversation], bool] = lambda _: False,
    ) -> None:
        super().__init__(rows, name=name, batch_size=batch_size, seed=seed)
        self._render, self._is_left_out = render, is_left_out
        self._reduction: Reduction = reduction
        self._on_bad_row: OnBadRow = on_bad_row
        self._max_tokens: int | None = None

    def get_batch(self, index: int) -> StreamedBatch:
        """Batch `index` in the present order.

        Raises:
            BadRowsError: rows of it cannot be used.
            IndexError: it is outside `range(len(self))`.
        """
        bad = BadRows(self._on_bad_row)
        examples = self._examples(self.rows_of(index), bad)
        for note in bad.notes:
            _log.warning("%s", note)
        return StreamedBatch(
            data_D=[shifted_datum(e.tokens_T, e.weights_T, self._reduction) for e in examples if e.num_trained_tokens],
            statistics=example_statistics(examples),
            num_skipped=bad.count,
        )

    def cut_to(self, num_tokens: int) -> None:
        """Truncate the examples of later batches to at most `num_tokens` tokens."""
        self._max_tokens = num_tokens

    def sample(self) -> tuple[list[Example], int]:
        """Examples of rows that are evenly spaced through the set, and of how many rows.

        Raises:
            InputError: none of them has a trained token.
            BadRowsError: rows among them cannot be used.
        """
        rows = self.sampled_rows()
        examples = self._examples(rows, BadRows(self._on_bad_row))
        if not any(example.num_trained_tokens for example in examples):
            raise InputError(
                f"{self.name}: none of {len(rows)} rows from all over it has a trained token; check train_on_what and "
                "max_length"
            )
        return examples, len(rows)

    def _examples(self, rows: Sequence[RawRow], bad: BadRows) -> list[Example]:
        def make(row: RawRow) -> Sequence[Example]:
            conversation = conversation_of(row)
            examples = () if self._is_left_out(conversation) else self._render(conversation)
            return (
                examples
                if self._max_tokens is None
                else [cut_example(example, self._max_tokens) for example in examples]
            )

        return [example for made in parse_each(rows, make, bad) for example in made]


def cut_example(example: Example, num_tokens: int) -> Example:
    """Return the example, truncated to at most `num_tokens` tokens."""
    num_cut = max(example.tokens_T.size - num_tokens, 0)
    return replace(
        example,
        tokens_T=example.tokens_T[:num_tokens],
        weights_T=example.weights_T[:num_tokens],
        num_cut_tokens=example.num_cut_tokens + num_cut,
    )
