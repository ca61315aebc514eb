"""Scores of predictions against references, each with its number of cases; nothing to score gives None, never 0."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cookhouse.errors import InputError

Averaging = Literal["macro", "micro", "weighted"]
"""`macro`: mean over classes. `micro`: over all cases. `weighted`: mean over classes by their number of references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """Accuracy, and precision, recall and F1 averaged over classes.

    A class that was never predicted has precision 0, one that is never right recall 0.
    """

    n: int
    averaging: Averaging
    accuracy: float | None
    precision: float | None
    recall: float | None
    f1: float | None


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean; None of nothing."""
    return sum(values) / len(values) if values else None


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean: sample standard deviation (n - 1) by √n; None of fewer than two values."""
    if len(values) < 2:
        return None
    center = sum(values) / len(values)
    variance = sum((value - center) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def weighted_mean(sums: Sequence[float], weights: Sequence[float]) -> tuple[float, float | None]:
    """The mean Σ sums / Σ weights, such as of tokens by example, and its standard error, in which the examples are what
    was drawn and their tokens go together: √(n/(n-1) · Σ (sum - mean · weight)²) / Σ weights, the linearized variance
    of a ratio (Cochran, Sampling Techniques, 1977, §6.4); None of fewer than two examples.
    """
    mean = sum(sums) / sum(weights)
    if len(sums) < 2:
        return mean, None
    squares = sum((each - mean * weight) ** 2 for each, weight in zip(sums, weights, strict=True))
    return mean, math.sqrt(len(sums) / (len(sums) - 1) * squares) / sum(weights)


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Probability that at least one of k answers is right, estimated without bias from `num_samples` of which
    `num_correct` are: 1 − C(n − c, k) / C(n, k), of Chen et al., 2021 (arXiv:2107.03374).

    Raises:
        InputError: k is not from 1 to `num_samples`.
    """
    if not 1 <= k <= num_samples:
        raise InputError(f"pass@{k} of {num_samples} samples cannot be estimated; k goes from 1 to {num_samples}")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def is_exact_match(answer: str, expected: str) -> bool:
    """Equality of texts, but for whitespace around them."""
    return answer.strip() == expected.strip()


def accuracy(predicted: Sequence[Hashable], expected: Sequence[Hashable]) -> float | None:
    """Share of predictions that equal their reference; None if there are none."""
    _check_lengths(predicted, expected)
    return mean([float(p == e) for p, e in zip(predicted, expected, strict=True)])


def classification(
    predicted: Sequence[Hashable],
    expected: Sequence[Hashable],
    *,
    averaging: Averaging,
    labels: Sequence[Hashable] | None = None,
) -> Classification:
    """Scores of class predictions, as scikit-learn's with `zero_division=0`. With `labels` the averages are over these
    classes, whether they occur or not: a prediction of another one is only a miss. Raises `InputError` if the lengths
    differ.
    """
    _check_lengths(predicted, expected)
    share = accuracy(predicted, expected)
    if share is None:
        return Classification(n=0, averaging=averaging, accuracy=None, precision=None, recall=None, f1=None)
    classes = list(dict.fromkeys([*expected, *predicted])) if labels is None else labels
    counts = [_counts(label, predicted, expected) for label in classes]
    if averaging == "micro":
        counts = [_Counts(*map(sum, zip(*counts, strict=True)))]
    total = sum(each.expected for each in counts)
    weights = [each.expected / total if averaging == "weighted" and total else 1 / len(counts) for each in counts]
    precision, recall, f1 = (
        sum(weight * score for weight, score in zip(weights, scores, strict=True))
        for scores in zip(*(each.scores for each in counts), strict=True)
    )
    return Classification(
        n=len(expected), averaging=averaging, accuracy=share, precision=precision, recall=recall, f1=f1
    )


class _Counts(NamedTuple):
    """Of one class."""

    hits: int
    predicted: int
    expected: int

    @property
    def scores(self) -> tuple[float, float, float]:
        """Precision, recall and F1."""
        return (
            self.hits / self.predicted if self.predicted else 0.0,
            self.hits / self.expected if self.expected else 0.0,
            2 * self.hits / (self.predicted + self.expected) if self.predicted + self.expected else 0.0,
        )


def _counts(label: Hashable, predicted: Sequence[Hashable], expected: Sequence[Hashable]) -> _Counts:
    hits = sum(p == e == label for p, e in zip(predicted, expected, strict=True))
    return _Counts(hits, predicted.count(label), expected.count(label))


def _check_lengths(predicted: Sequence[Hashable], expected: Sequence[Hashable]) -> None:
    if len(predicted) != len(expected):
        raise InputError(f"{len(predicted)} predictions for {len(expected)} references; there must be one for each")
