"""Counts of the examples of a run, before they are trained on and once they have been."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from cookhouse.algorithms.base.estimate import RunEstimate
from cookhouse.algorithms.base.spending import ExpectedTokens
from cookhouse.algorithms.base.time_left import Schedule
from cookhouse.data.batches.counting import count_items
from cookhouse.data.batches.examples import ExampleStatistics
from cookhouse.telemetry import Telemetry, keys, read_metrics
from cookhouse.training import FinishedStep, StepLog


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Figures of all examples of an epoch; where `num_sampled` says of how many rows, they are estimated from those."""

    statistics: ExampleStatistics
    num_rows: int
    num_sampled: int | None = None

    def __str__(self) -> str:
        found = self.statistics
        about = "" if self.num_sampled is None else "about "
        source = "" if self.num_sampled is None else f" (estimated from {self.num_sampled:,} of {self.num_rows:,} rows)"
        return (
            f"{about}{found.num_examples:,} examples of {found.num_tokens:,} tokens, {found.num_trained_tokens:,} "
            f"({found.trained_share:.1%}) trained on; {found.num_truncated:,} are truncated, "
            f"{found.num_untrained:,} have no trained token{source}"
        )


def added(parts: Sequence[Counts]) -> Counts:
    """The figures of several sets together."""
    statistics = [part.statistics for part in parts]
    sampled = [part.num_sampled for part in parts]
    return Counts(
        statistics=ExampleStatistics(
            num_examples=sum(each.num_examples for each in statistics),
            num_tokens=sum(each.num_tokens for each in statistics),
            num_trained_tokens=sum(each.num_trained_tokens for each in statistics),
            num_truncated=sum(each.num_truncated for each in statistics),
            num_cut_tokens=sum(each.num_cut_tokens for each in statistics),
            num_positions=sum(each.num_positions for each in statistics),
            num_untrained=sum(each.num_untrained for each in statistics),
            longest_tokens=max(each.longest_tokens for each in statistics),
        ),
        num_rows=sum(part.num_rows for part in parts),
        num_sampled=(
            None
            if all(count is None for count in sampled)
            else sum(part.num_rows if part.num_sampled is None else part.num_sampled for part in parts)
        ),
    )


def estimated(statistics: ExampleStatistics, *, num_sampled: int, num_rows: int) -> Counts:
    """The figures of all rows as those of a sample have them; the longest example is that of the sample."""

    def scaled(count: int) -> int:
        return round(count * num_rows / max(num_sampled, 1))

    return Counts(
        statistics=ExampleStatistics(
            num_examples=scaled(statistics.num_examples),
            num_tokens=scaled(statistics.num_tokens),
            num_trained_tokens=scaled(statistics.num_trained_tokens),
            num_truncated=scaled(statistics.num_truncated),
            num_cut_tokens=scaled(statistics.num_cut_tokens),
            num_positions=scaled(statistics.num_positions),
            num_untrained=scaled(statistics.num_untrained),
            longest_tokens=statistics.longest_tokens,
        ),
        num_rows=num_rows,
        num_sampled=num_sampled,
    )


class CountedData(Protocol):
    """Batches of examples that are all there."""

    def count_positions(self, total_steps: int, steps_per_epoch: int) -> int: ...


@runtime_checkable
class ReadData(Protocol):
    """Batches of rows that are read as they are trained on."""

    @property
    def num_rows(self) -> int: ...
    @property
    def batch_size(self) -> int: ...


def expected_training(
    parts: Sequence[tuple[CountedData | ReadData, Counts]], total_steps: int, steps_per_epoch: int
) -> ExpectedTokens:
    """Tokens that the steps of a run train on, of sets that each step has a batch of: exact, where all of them are
    there.
    """
    tokens = 0
    is_exact = True
    for data, counts in parts:
        if isinstance(data, ReadData):
            rows = count_items(
                data.num_rows, batch_size=data.batch_size, total_steps=total_steps, steps_per_epoch=steps_per_epoch
            )
            tokens += round(counts.statistics.num_positions * rows / counts.num_rows)
            is_exact = False
        else:
            tokens += data.count_positions(total_steps, steps_per_epoch)
    return ExpectedTokens(tokens={"trained_tokens": tokens}, degree="" if is_exact else "about")


def batch_metrics(statistics: ExampleStatistics, num_skipped: int) -> dict[str, float]:
    """Metrics on the content of a batch of a streamed set, for the row of its step."""
    return {
        keys.DATA_EXAMPLES: statistics.num_examples,
        keys.DATA_TOKENS: statistics.num_tokens,
        keys.DATA_TRAINED_TOKENS: statistics.num_trained_tokens,
        keys.DATA_TRUNCATED: statistics.num_truncated,
        keys.DATA_UNTRAINED: statistics.num_untrained,
        keys.DATA_SKIPPED: num_skipped,
    }


class CountingLog:
    """`StepLog` with a `RunEstimate`, which says at the end of each epoch of a streamed set what its rows turned out to
    be. Rows of the metrics file, those from before a resume among them, are what is added up.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        schedule: Schedule,
        steps_per_epoch: int,
        metrics: Path,
        *,
        event: str | None = None,
    ) -> None:
        """`event`: the algorithm's own name of a step."""
        self._estimate = RunEstimate(telemetry, schedule)
        self._log = StepLog(
            telemetry,
            schedule.total_steps,
            steps_per_epoch=steps_per_epoch,
            event=event,
            of_event=self._estimate.add,
        )
        self._telemetry = telemetry
        self._steps_per_epoch = steps_per_epoch
        self._metrics = metrics

    def __call__(self, finished: FinishedStep) -> None:
        self._log(finished)
        self._estimate.say()
        cursor = finished.cursor
        if cursor.batch + 1 == self._steps_per_epoch and keys.DATA_EXAMPLES in finished.metrics:
            rows = [row for row in read_metrics(self._metrics) if row.get(keys.PROGRESS_EPOCH) == cursor.epoch]
            self._telemetry.notes([f"epoch {cursor.epoch} had {_total(rows)}"])


def _total(rows: Sequence[Mapping[str, float]]) -> str:
    def total(key: str) -> int:
        return int(sum(row.get(key, 0) for row in rows))

    num_tokens, num_trained = total(keys.DATA_TOKENS), total(keys.DATA_TRAINED_TOKENS)
    return (
        f"{total(keys.DATA_EXAMPLES):,} examples of {num_tokens:,} tokens, {num_trained:,} "
        f"({num_trained / max(num_tokens, 1):.1%}) trained on; {total(keys.DATA_TRUNCATED):,} lost their end, "
        f"{total(keys.DATA_UNTRAINED):,} had no trained token, {total(keys.DATA_SKIPPED):,} rows could not be used"
    )
