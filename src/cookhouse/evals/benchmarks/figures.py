"""Figures of attempts: means with their standard errors, and pass@k.

Several answers to one item are not independent, so that errors are those of items: the mean of an item's answers is one
value, and the standard error of n items is that of the mean of n values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cookhouse.evals.benchmarks.attempts import Attempt, Outcome
from cookhouse.evals.scores import mean, pass_at_k, standard_error

if TYPE_CHECKING:
    from cookhouse.evals.benchmarks.loading import LoadedBenchmark  # reads rows: not loaded for a mean


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over `n` items; what is not known is None."""

    mean: float | None
    stderr: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Of one value for each item."""
        return cls(mean=mean(values), stderr=standard_error(values), n=len(values))


def benchmark_figures(loaded: "LoadedBenchmark", attempts: Sequence[Attempt]) -> dict[str, Estimate]:
    """By name: `correct`, `pass@k` where there are several samples of each item, what grades say besides, `malformed`
    and `failed` (shares of answers), and `correct/{group}` where items have groups.
    """
    figures = {"correct": Estimate.of([attempt.correct for attempt in attempts])}
    for k in _ks(attempts):
        figures[f"pass@{k}"] = Estimate.of([pass_at_k(len(a.answers), a.num_right, k) for a in attempts])
    for name in dict.fromkeys(name for a in attempts for grade in a.grades for name in grade.metrics):
        figures[name] = Estimate.of([value for a in attempts if (value := _mean_of(a, name)) is not None])
    for outcome in (Outcome.MALFORMED, Outcome.FAILED):
        figures[outcome] = Estimate.of([a.outcomes.count(outcome) / len(a.answers) for a in attempts])
    groups = {a.place: loaded.items[a.place].group for a in attempts}
    for group in sorted({group for group in groups.values() if group is not None}):
        figures[f"correct/{group}"] = Estimate.of([a.correct for a in attempts if groups[a.place] == group])
    return figures


def is_of_group(name: str) -> bool:
    """True if a figure is of one kind of problems, as those by group are; pages have these, tables leave them out."""
    return name.startswith("correct/")


def as_metrics(name: str, figures: Mapping[str, Estimate]) -> dict[str, float | None]:
    """Figures of a benchmark as metrics: each by its name, with `_stderr` behind it, and with `_n` the items."""
    metrics: dict[str, float | None] = {}
    for figure, estimate in figures.items():
        metrics[f"{name}/{figure}"] = estimate.mean
        metrics[f"{name}/{figure}_stderr"] = estimate.stderr
        metrics[f"{name}/{figure}_n"] = float(estimate.n)
    return metrics


def _ks(attempts: Sequence[Attempt]) -> list[int]:
    """1, 2, 4 and so on below the number of samples, and that number; none where there is one of each item."""
    num_samples = min((len(attempt.answers) for attempt in attempts), default=0)
    if num_samples < 2:
        return []
    return [*(2**i for i in range(num_samples.bit_length()) if 2**i < num_samples), num_samples]


def _mean_of(attempt: Attempt, name: str) -> float | None:
    return mean([grade.metrics[name] for grade in attempt.grades if name in grade.metrics])
