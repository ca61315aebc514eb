"""Pairs whose rows are not all in memory: read, checked and tokenized batch by batch."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cookhouse import algorithms as alg
from cookhouse.data import (
    BadRows,
    ExampleStatistics,
    OnBadRow,
    PreferenceRow,
    RawRow,
    Rows,
    ShuffledRows,
    cut_example,
    example_statistics,
    parse_each,
    preference_of,
)
from cookhouse.errors import InputError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StreamedPairBatch:
    """Pairs, and what there is to say of the rows that they are made of."""

    pairs: Sequence[alg.Pair]
    statistics: ExampleStatistics
    """Of the answers of all pairs, including those that are left out."""
    num_skipped: int
    """Rows that cannot be used, and pairs that have nothing to learn from once they are truncated."""


class StreamedPairs(ShuffledRows):
    """Batches of the pairs of `batch_size` rows. Rows that cannot be used, pairs with nothing to learn from, and rows
    for which `is_held_out` is true are left out of a batch; all but the last are counted.
    """

    def __init__(
        self,
        rows: Rows,
        render: Callable[[PreferenceRow], alg.Pair],
        *,
        name: str,
        batch_size: int,
        seed: int = 0,
        on_bad_row: OnBadRow = "stop",
        is_held_out: Callable[[PreferenceRow], bool] = lambda _: False,
    ) -> None:
        """Raises as `ShuffledRows`; `InputError` too where no row from all over the set gives a pair to learn from, and
        `BadRowsError` where rows among these cannot be used.
        """
        super().__init__(rows, name=name, batch_size=batch_size, seed=seed)
        self._render, self._is_held_out = render, is_held_out
        self._on_bad_row: OnBadRow = on_bad_row
        self._max_tokens: int | None = None
        sample = self.sampled_rows()
        self.num_sampled = len(sample)
        self.pairs = [pair for pair in self._made(sample, BadRows(on_bad_row)) if pair.lost_answer is None]
        """Pairs of rows that are evenly spaced through the set; totals of the set are estimated from them."""
        if not self.pairs:
            raise InputError(
                f"{name}: none of {len(sample)} rows from all over it gives a pair to learn from; set max_length "
                "higher, or see what the data holds"
            )

    def get_batch(self, index: int) -> StreamedPairBatch:
        """Batch `index` in the present order.

        Raises:
            BadRowsError: rows of it cannot be used.
            IndexError: it is outside `range(len(self))`.
        """
        bad = BadRows(self._on_bad_row)
        made = self._made(self.rows_of(index), bad)
        lost = [reason for pair in made if (reason := pair.lost_answer) is not None]
        for note in [*bad.notes, *alg.left_out(lost, len(made), "pairs of a batch")]:
            _log.warning("%s", note)
        return StreamedPairBatch(
            pairs=[pair for pair in made if pair.lost_answer is None],
            statistics=example_statistics([each for pair in made for each in pair.examples]),
            num_skipped=bad.count + len(lost),
        )

    def cut_to(self, num_tokens: int) -> None:
        """Truncate the pairs of later batches: each answer with its prompt to at most `num_tokens` tokens."""
        self._max_tokens = num_tokens

    def _made(self, rows: Sequence[RawRow], bad: BadRows) -> list[alg.Pair]:
        def make(row: RawRow) -> list[alg.Pair]:
            preference = preference_of(row)
            return [] if self._is_held_out(preference) else [self._cut(self._render(preference))]

        return [pair for made in parse_each(rows, make, bad) for pair in made]

    def _cut(self, pair: alg.Pair) -> alg.Pair:
        limit = self._max_tokens
        if limit is None or pair.longest_tokens <= limit:
            return pair
        return alg.Pair(chosen=cut_example(pair.chosen, limit), rejected=cut_example(pair.rejected, limit))
