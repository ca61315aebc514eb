"""Advantages over a batch and denominators of the loss, by hand."""

from collections.abc import Sequence

import pytest
import tinker
from tests.rl.learning.test_kl import datum_of

from cookhouse.rl.learning.batch import normalize_advantages, reduced

BATCH = [datum_of([0, 1, 1, 1], [0, -1, -1, -1], [0, 4, 4, 1]), datum_of([1], [-1], [-1])]
"""Advantages 4, 4, 1 and −1 at the four sampled tokens: mean 2, variance (4 + 4 + 1 + 9) / 4."""


def advantages(data_D: Sequence[tinker.Datum]) -> list[list[float]]:
    return [datum.loss_fn_inputs["advantages"].tolist() for datum in data_D]


def test_advantages_are_normalized_over_the_tokens_of_the_batch() -> None:
    # Catches a mean over datums or positions instead of sampled tokens, n − 1, and values where nothing was sampled.
    deviation = (18 / 4) ** 0.5
    first, second = advantages(normalize_advantages(BATCH))
    assert first == pytest.approx([0, 2 / deviation, 2 / deviation, -1 / deviation], rel=1e-6)
    assert second == pytest.approx([-3 / deviation], rel=1e-6)
    assert advantages(BATCH) == [[0, 4, 4, 1], [-1]], "the datums that were given stay as they are"


def test_equal_advantages_teach_nothing() -> None:
    # Catches rounding that a deviation of 0 blows up.
    assert advantages(normalize_advantages([datum_of([1, 1, 1], [-1] * 3, [0.1] * 3)])) == [pytest.approx([0.0] * 3)]
    assert normalize_advantages([]) == []
    [unsampled] = normalize_advantages([datum_of([0], [0], [0])])
    assert advantages([unsampled]) == [[0]]


def test_denominators_by_hand() -> None:
    # Two datums of 3 and 1 sampled tokens are the piece, and a third of 2 belongs to the same optimizer step.
    update = [*BATCH, datum_of([1, 1], [-1, -1], [2, 2])]
    assert advantages(reduced(BATCH, "none", update)) == [[0, 4, 4, 1], [-1]]
    assert advantages(reduced(BATCH, "mean", update)) == [pytest.approx([0, 4 / 3, 4 / 3, 1 / 3]), [-1]]
    expected = [pytest.approx([0, 4 / 6, 4 / 6, 1 / 6]), pytest.approx([-1 / 6])]
    assert advantages(reduced(BATCH, "token_mean", update)) == expected
    assert reduced([], "token_mean", []) == []


def test_a_rollout_weighs_the_same_however_often_it_forks() -> None:
    """Catches a mean over sequences, by which a rollout of two counts twice."""
    forked = [datum_of([1, 1, 1], [-1] * 3, [6] * 3), datum_of([0, 1], [0, -1], [0, 6])]
    whole = datum_of([1, 1, 1, 1], [-1] * 4, [6] * 4)
    data = [*forked, whole]
    found = advantages(reduced(data, "mean", data, [2, 1]))
    assert found == [[1.5] * 3, [0, 1.5], [1.5] * 4]
    assert sum(map(sum, found[:2])) == sum(found[2]) == 6
