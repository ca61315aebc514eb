import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from cookhouse.report.columns import curves_of
from cookhouse.report.curves import MAX_POINTS, Curve, step_range


def only_curve(values: Sequence[Any]) -> Curve:
    """The curve of a metric whose value at step i is values[i]; None is a step without it."""
    rows = [{"step": step, "m": value} if value is not None else {"step": step} for step, value in enumerate(values)]
    (curve,) = curves_of(rows, own={})
    return curve


def stretches(curve: Curve) -> list[list[int]]:
    return [[point.step for point in stretch] for stretch in curve.stretches()]


@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf, None, "high", True, 10**400, 1e308])
def test_a_value_that_cannot_be_drawn_is_a_gap(missing: object) -> None:
    # Catches a gap that is drawn as zero, or bridged by a line.
    curve = only_curve([1.0, 2.0, missing, 4.0, 5.0])
    assert [point.value for point in curve.points] == [1.0, 2.0, 4.0, 5.0]
    assert stretches(curve) == [[1, 2], [4, 5]]


def test_steps_between_evaluations_are_no_gaps_but_a_failed_evaluation_is_one() -> None:
    curve = only_curve([1.0, None, None, 2.0, None, None, math.nan, None, None, 4.0])
    assert not curve.is_dense
    assert curve.num_not_finite == 1
    assert stretches(curve) == [[1, 4], [10]]


def test_rows_of_one_step_are_one_step() -> None:
    # Catches a break in the training curve where an evaluation wrote a row of its own.
    rows: list[dict[str, Any]] = [
        {"step": 0, "a": 1.0},
        {"step": 0, "b": 5.0},
        {"step": 1, "a": 2.0},
        {"step": 1, "b": 6.0},
    ]
    assert {curve.name: stretches(curve) for curve in curves_of(rows, own={})} == {"a": [[1, 2]], "b": [[1, 2]]}


def test_few_enough_points_keep_ends_extremes_and_gaps() -> None:
    # Catches decimation that takes every n-th point and loses the spike that somebody looks for.
    random.seed(1)
    values: list[float] = [random.random() for _ in range(20_001)]
    values[7_777], values[12_345], values[15_000] = 50.0, -50.0, math.nan
    curve = only_curve(values)
    points = [point for stretch in curve.stretches() for point in stretch]
    assert len(points) <= MAX_POINTS
    assert (points[0].step, points[-1].step) == (1, 20_001)
    assert {50.0, -50.0} <= {point.value for point in points}
    assert [point.step for point in points] == sorted({point.step for point in points})
    assert len(list(curve.stretches())) == 2


def test_a_curve_full_of_gaps_is_thinned_too() -> None:
    curve = only_curve([None if step % 3 == 2 else float(step) for step in range(9_000)])
    assert sum(map(len, stretches(curve))) <= MAX_POINTS


def test_steps_are_counted_from_1_and_weights_by_the_steps_they_had_taken() -> None:
    """Catches a last step of 119 on the page of a run that the terminal tells 120/120 of."""
    rows = [
        {"step": 0, "train/loss": 3.0, "test/nll": 4.0},
        {"step": 1, "train/loss": 2.0},
        {"step": 2, "test/nll": 1.0},
    ]
    trained, held_out = sorted(curves_of(rows, own={}), key=lambda curve: curve.name, reverse=True)
    assert stretches(trained) == [[1, 2]]
    assert [point.step for point in held_out.points] == [0, 2]
    assert step_range([trained, held_out]) == (0, 2)


def test_a_few_values_are_joined_and_not_taken_for_a_broken_line() -> None:
    # Catches two dots without a line where a metric was measured three times, by chance close together.
    assert stretches(only_curve([1.0, 2.0, None, 4.0])) == [[1, 2, 4]]
    assert stretches(only_curve([1.0, None, 3.0])) == [[1, 3]]
