"""Two models at the same items: what separates them, item by item, so that what is hard for both cancels out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cookhouse.evals.benchmarks.attempts import Attempt
from cookhouse.evals.scores import mean, standard_error
from cookhouse.telemetry import Z95

K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Mean of `second - first` over the items that both have, with its standard error and its 95 % interval, by the
    normal distribution; what is not known is None.
    """

    mean: float | None
    stderr: float | None
    n: int

    @classmethod
    def of(cls, first: Mapping[K, float], second: Mapping[K, float]) -> "PairedDifference":
        """Of a value for each item, by what identifies items. The standard error is that of the mean of the
        differences, one for each item.
        """
        values = [value - first[item] for item, value in second.items() if item in first]
        return cls(mean=mean(values), stderr=standard_error(values), n=len(values))

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.mean is None or self.stderr is None:
            return None
        half = Z95 * self.stderr
        return self.mean - half, self.mean + half

    @property
    def is_clear(self) -> bool:
        """True if the interval does not hold 0."""
        return self.interval is not None and not self.interval[0] <= 0.0 <= self.interval[1]


def paired_difference(first: Sequence[Attempt], second: Sequence[Attempt]) -> PairedDifference:
    """Difference of the shares of items that the second model and the first answer right."""
    return PairedDifference.of(*({attempt.place: attempt.correct for attempt in some} for some in (first, second)))
