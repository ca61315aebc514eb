"""Items at which two models differ: which they are, and the difference of the means with its standard error."""

import math

import pytest

from cookhouse.report import Change, item_changes


def test_each_item_is_told_by_what_became_of_it() -> None:
    # Catches a gain that is counted as a loss, and an item that only one has among those compared.
    first = {"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.0, "gone": 1.0}
    second = {"new": 1.0, "d": 0.0, "c": 1.0, "b": 0.0, "a": 1.0}
    found = item_changes(first, second)
    assert found.items == {
        Change.GAINED: ["a"],
        Change.LOST: ["b"],
        Change.RIGHT: ["c"],
        Change.WRONG: ["d"],
    }
    assert (found.num_only_first, found.num_only_second) == (1, 1)
    assert (found.first.mean, found.second.mean, found.difference.mean, found.difference.n) == (0.5, 0.5, 0.0, 4)
    assert found.of([Change.LOST, Change.GAINED]) == ["a", "b"], "those that were gained first"


def test_the_difference_is_paired() -> None:
    # Catches a standard error of two means that are taken for independent: here every item gains the same.
    first = {number: number / 8 for number in range(4)}
    second = {number: score + 0.5 for number, score in first.items()}
    found = item_changes(first, second)
    assert found.difference.mean == pytest.approx(0.5)
    assert found.difference.stderr == 0.0
    assert found.first.stderr is not None
    assert math.isclose(found.first.stderr, 0.0806872, rel_tol=1e-4)  # √(Σ(x - x̄)² / 3 / 4)


def test_of_several_samples_more_often_is_a_gain() -> None:
    found = item_changes({1: 0.25, 2: 0.5, 3: 1.0}, {1: 0.75, 2: 0.5, 3: 1.0})
    assert found.items == {Change.GAINED: [1], Change.LOST: [], Change.RIGHT: [3], Change.WRONG: [2]}


def test_nothing_in_common_is_no_difference() -> None:
    found = item_changes({"a": 1.0}, {"b": 1.0})
    assert (found.difference.mean, found.difference.stderr, found.difference.n) == (None, None, 0)
    assert found.first.mean is None
