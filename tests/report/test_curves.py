import math
import random
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

from cookhouse.report.columns import curves_of
from cookhouse.report.curves import MAX_POINTS, Curve, step_range
from cookhouse.report.drawing import curve_drawing, drawing_svg


def only_curve(values: Sequence[Any]) -> Curve:
    """The curve of a metric whose value at step i is values[i]; None is a step without it."""
    rows = [{"step": step, "m": value} if value is not None else {"step": step} for step, value in enumerate(values)]
    (curve,) = curves_of(rows, own={})
    return curve


def drawn(curve: Curve, first_step: int = 0, last_step: int = 10) -> ElementTree.Element:
    """The chart, parsed, which fails unless it is well-formed; every number in it must be one."""
    svg = drawing_svg(curve_drawing(curve, first_step, last_step))
    assert "nan" not in svg
    assert "inf" not in svg
    return ElementTree.fromstring(svg)


def stretches(curve: Curve) -> list[list[int]]:
    return [[point.step for point in stretch] for stretch in curve.stretches()]


@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf, None, "high", True, 10**400, 1e308])
def test_a_value_that_cannot_be_drawn_is_a_gap(missing: object) -> None:
    # Catches a gap that is drawn as zero, or bridged by a line.
    curve = only_curve([1.0, 2.0, missing, 4.0, 5.0])
    assert [point.value for point in curve.points] == [1.0, 2.0, 4.0, 5.0]
    assert stretches(curve) == [[1, 2], [4, 5]]
    assert len(drawn(curve).findall("polyline")) == 2


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


@pytest.mark.parametrize(
    "values",
    [
        [0.0],
        [-0.0, -0.0],
        [5.0, 5.0, 5.0],
        [1e-320, 2e-320],
        [2e307, -2e307],
        [1e9, 1e9 + 1e-7],
        [-3e-6, 2e-6],
        [1.0, 1e6],
    ],
)
def test_any_range_has_a_few_labels_that_differ(values: list[float]) -> None:
    # Catches division by zero on flat curves, overflow on wild ones, and an axis that says 1.0 five times.
    labels = [node.text for node in drawn(only_curve(values)).findall("text") if node.get("text-anchor") == "end"]
    assert 1 <= len(labels) <= 6
    assert len(set(labels)) == len(labels)
    assert not {"-0", "-0.0"} & set(labels)


def test_every_point_lies_in_the_chart_and_tells_its_value() -> None:
    chart = drawn(only_curve([3.0, -1.5, 12.25]), 1, 3)
    circles = chart.findall("circle")
    assert [circle.findtext("title") for circle in circles] == ["step 1: 3", "step 2: -1.5", "step 3: 12.25"]
    _, _, width, height = map(float, chart.attrib["viewBox"].split())
    places = [(float(circle.attrib["cx"]), float(circle.attrib["cy"])) for circle in circles]
    assert all(0 < x < width and 0 < y < height for x, y in places)
    assert places[2][1] < places[0][1] < places[1][1]
    assert places[0][0] < places[1][0] < places[2][0]


def test_a_lone_value_is_a_dot_at_its_step() -> None:
    chart = drawn(only_curve([7.0]), 1, 1)
    assert [circle.attrib["class"] for circle in chart.findall("circle")] == ["dot"]
    assert [node.text for node in chart.findall("text") if node.get("text-anchor") == "middle"] == ["1"]


def test_the_name_of_a_metric_is_never_markup() -> None:
    (curve,) = curves_of([{"step": 0, '"><script>\x00\ud800': 1.0}], own={})
    chart = drawn(curve)
    assert chart.attrib["aria-label"].startswith('"><script>\\x00\\ud800')


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


def test_a_share_has_an_axis_in_percent() -> None:
    (curve,) = curves_of([{"step": step, "test/exact_match": step / 4} for step in range(4)], own={})
    labels = [node.text for node in drawn(curve, 0, 3).findall("text") if node.get("text-anchor") == "end"]
    assert labels == ["0%", "20%", "40%", "60%"]
    assert drawn(curve, 0, 3).findall("circle")[2].findtext("title") == "step 2: 50%"


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.5, 1.0], [0.98, 0.99, 0.99]])
def test_the_axis_of_a_share_ends_where_shares_do(values: Sequence[float]) -> None:
    # Catches labels from -40% to 40% around an accuracy of 0, and 105% above one of 1.
    rows = [{"step": step, "test/accuracy": value} for step, value in enumerate(values)]
    (curve,) = curves_of(rows, own={})
    labels = [text.text or "" for text in drawn(curve).findall("text")]
    shares = [float(label.removesuffix("%")) for label in labels if label.endswith("%")]
    assert len(shares) > 1
    assert min(shares) >= 0
    assert max(shares) <= 100
