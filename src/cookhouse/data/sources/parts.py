"""Rows made of other rows: some of them, several sets one after the other, or each row in another form.

Legend: K blocks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cookhouse.data.sources.store import RawRow, Rows, num_rows
from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Rows of a set that are held out: chosen by the seed alone, or the first where there is none."""

    count: int | None = None
    fraction: float | None = None
    """Where there is no count: the share of all rows."""
    seed: int | None = None

    def indices(self, total: int) -> NDArray[np.int64]:
        """Of `total` rows, in the order in which they are held out; some are always left to train on.

        Raises:
            InputError: there are too few rows to hold any out.
        """
        count = self.count if self.count is not None else round(total * (self.fraction or 0.0))
        count = max(1, min(count, total // 2 if self.fraction is None else total - 1))
        if total < 2:
            raise InputError(f"{total} rows are too few to hold some of them out; give test_path, or more rows")
        order = np.arange(total) if self.seed is None else np.random.default_rng(self.seed).permutation(total)
        return order[:count].astype(np.int64)


class SelectedRows:
    """The rows of a set at some indices, or all but those; in the set's own order, in its blocks."""

    def __init__(self, rows: Rows, indices: NDArray[np.int64], *, without: bool = False) -> None:
        self._rows, self._without = rows, without
        starts_K = np.cumsum(rows.block_rows) - rows.block_rows
        self._chosen = np.sort(indices)
        edges = np.searchsorted(self._chosen, [*starts_K, num_rows(rows)])
        self._starts_K, self._edges = starts_K, edges
        chosen_K = np.diff(edges)
        self.block_rows: NDArray[np.int64] = rows.block_rows - chosen_K if without else chosen_K
        self.num_bytes = rows.num_bytes * num_rows(self) // max(num_rows(rows), 1)
        self.columns = rows.columns

    def read(self, block: int) -> Sequence[RawRow]:
        if not self.block_rows[block]:
            return []
        start, end = self._edges[block : block + 2]
        within = set((self._chosen[start:end] - self._starts_K[block]).tolist())
        read = self._rows.read(block)
        return [row for index, row in enumerate(read) if (index in within) != self._without]


class JoinedRows:
    """Several sets, one after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._blocks = [(part, block) for part in parts for block in range(len(part.block_rows))]
        self.block_rows = np.concatenate([part.block_rows for part in parts])
        self.num_bytes = sum(part.num_bytes for part in parts)
        self.columns = parts[0].columns if len({tuple(p.columns or ()) for p in parts}) == 1 else None

    def read(self, block: int) -> Sequence[RawRow]:
        part, index = self._blocks[block]
        return part.read(index)


class ConvertedRows:
    """Each row in another form; one of which `convert` makes None is left out."""

    columns: Sequence[str] | None = None

    def __init__(self, rows: Rows, convert: Callable[[Mapping[str, object]], Mapping[str, object] | None]) -> None:
        self._rows, self._convert = rows, convert
        self.block_rows = rows.block_rows
        self.num_bytes = rows.num_bytes

    def read(self, block: int) -> Sequence[RawRow]:
        return [RawRow(place=row.place, content=self._converted(row)) for row in self._rows.read(block)]

    def _converted(self, row: RawRow) -> object:
        if row.is_blank or isinstance(row.content, InputError):
            return row.content
        try:
            value = row.value()
            if not isinstance(value, Mapping):
                raise InputError(f"a row must be an object, not {type(value).__name__}")
            return self._convert(value)
        except InputError as error:
            return InputError(str(error).removeprefix(f"{row.place}: "))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            return InputError(f"it has not the fields of its set: {type(error).__name__}: {error}")


def first_rows(rows: Rows, count: int | None) -> Rows:
    """The first `count` rows, blank ones included, or all; blocks behind them are not read."""
    if count is None or count >= num_rows(rows):
        return rows
    return SelectedRows(rows, np.arange(count, dtype=np.int64))


def sampled(rows: Rows, count: int) -> Iterator[RawRow]:
    """At most `count` rows, evenly spaced; blocks that have none of them are not read, and one is in memory."""
    total = num_rows(rows)
    kept = min(count, total)
    indices = np.array([index * total // kept for index in range(kept)], dtype=np.int64)
    some = SelectedRows(rows, indices)
    for block in np.flatnonzero(some.block_rows):
        yield from (row for row in some.read(int(block)) if not row.is_blank)
