"""Scores, against hand calculation."""

import random
from typing import Any

import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from cookhouse.errors import InputError
from cookhouse.evals import accuracy, classification, is_exact_match, mean, standard_error


def test_nothing_to_score_is_none_and_never_zero() -> None:
    assert mean([]) is None
    assert standard_error([]) is None
    assert standard_error([1.0]) is None
    assert accuracy([], []) is None
    scores = classification([], [], averaging="macro")
    assert (scores.n, scores.accuracy, scores.precision, scores.recall, scores.f1) == (0, None, None, None, None)


def test_standard_error_by_hand() -> None:
    # Mean 0.5, squared deviations 4 · 0.25 over 3, by √4.
    assert standard_error([0.0, 0.0, 1.0, 1.0]) == pytest.approx((1 / 3) ** 0.5 / 2)


@pytest.mark.parametrize(
    ("averaging", "precision", "recall", "f1"),
    [
        # a: 2 predicted, 3 expected, 2 hits; b: 2 predicted, 1 expected, 1 hit.
        ("macro", (1.0 + 0.5) / 2, (2 / 3 + 1) / 2, (0.8 + 2 / 3) / 2),
        ("micro", 0.75, 0.75, 0.75),
        ("weighted", 0.75 * 1.0 + 0.25 * 0.5, 0.75 * 2 / 3 + 0.25, 0.75 * 0.8 + 0.25 * 2 / 3),
    ],
)
def test_classification_by_hand(averaging: str, precision: float, recall: float, f1: float) -> None:
    scores = classification(["a", "a", "b", "b"], ["a", "a", "a", "b"], averaging=averaging)  # type: ignore[arg-type]
    assert (scores.n, scores.accuracy) == (4, 0.75)
    assert (scores.precision, scores.recall, scores.f1) == pytest.approx((precision, recall, f1))


def test_a_class_never_predicted_or_never_expected_counts_as_zero() -> None:
    scores = classification(["c", "c"], ["a", "c"], averaging="macro")
    assert (scores.precision, scores.recall) == pytest.approx((0.25, 0.5))


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(InputError, match="1 predictions for 2 references"):
        accuracy(["a"], ["a", "b"])


def test_exact_match_ignores_whitespace_around_and_nothing_else() -> None:
    assert is_exact_match(" 42\n", "42")
    assert not is_exact_match("42.", "42")
    assert not is_exact_match("a  b", "a b")


@pytest.mark.parametrize("averaging", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("labels", [None, ["a", "b", "c"], ["a", "d"]])
@pytest.mark.parametrize("seed", range(5))
def test_classification_is_scikit_learns(averaging: Any, labels: list[str] | None, seed: int) -> None:
    """Also where answers are of no class, and where a class is never predicted or never expected."""
    chance = random.Random(seed)
    expected = chance.choices(["a", "b", "c"], [5, 2, 1], k=30)
    predicted = [e if chance.random() < 0.6 else chance.choice(["a", "b", "nothing of these"]) for e in expected]
    scores = classification(predicted, expected, averaging=averaging, labels=labels)
    precision, recall, f1, _ = precision_recall_fscore_support(
        expected, predicted, labels=labels, average=averaging, zero_division=0.0
    )
    assert (scores.precision, scores.recall, scores.f1) == pytest.approx((precision, recall, f1), abs=1e-12)
    assert scores.accuracy == pytest.approx(accuracy_score(expected, predicted), abs=1e-12)
