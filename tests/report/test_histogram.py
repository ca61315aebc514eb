"""Bars count every value once, between round edges."""

import math
import random

import pytest

from cookhouse.report.histogram import MAX_BARS, histogram


def test_a_few_values_have_a_bar_each() -> None:
    # Catches rewards of 0 and 1 in the outermost of twenty bars.
    bars = histogram([1.0, 0.0, 1.0, -0.1], [True, False, False, True])
    assert [(bar.low, bar.high, bar.count, bar.num_chosen) for bar in bars] == [
        (-0.1, -0.1, 1, 1),
        (0.0, 0.0, 1, 0),
        (1.0, 1.0, 2, 1),
    ]


def test_many_values_stand_between_round_edges() -> None:
    values = [index / 100 for index in range(-37, 112)]
    bars = histogram(values, [value > 1 for value in values])
    assert (bars[0].low, bars[0].high, bars[-1].high) == (-0.4, -0.3, 1.2)
    assert sum(bar.count for bar in bars) == len(values)
    assert sum(bar.num_chosen for bar in bars) == 11
    assert (bars[0].least, bars[0].most) == (-0.37, -0.31)


@pytest.mark.parametrize("scale", [1e-320, 1e-12, 1.0, 1e9, 1e307])
@pytest.mark.parametrize("shift", [0.0, 1.0, -1e6])
def test_every_finite_value_is_in_one_bar(scale: float, shift: float) -> None:
    # Catches scales whose edges overflow, or fall together.
    rng = random.Random(0)
    values = [rng.gauss(0, 1) * scale + shift for _ in range(200)]
    bars = histogram([*values, math.nan, math.inf], [True] * 202)
    assert sum(bar.count for bar in bars) == 200
    assert len(bars) <= 2 * MAX_BARS
    assert min(bar.least for bar in bars if bar.least is not None) == min(values)


def test_nothing_has_no_bars() -> None:
    assert histogram([math.nan], [True]) == []
