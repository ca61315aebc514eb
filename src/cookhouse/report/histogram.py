"""Histogram of values: bars of equal width between round edges."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

MAX_BARS = 24
_FEW_VALUES = 12
"""So many different values have a bar each."""
_FLAT = 1e-9
"""Width of a bar, as a share of the largest value, below which edges cannot be distinguished."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Values from `low` on to below `high`; of the last bar, and where both are equal, `high` among them."""

    low: float
    high: float
    least: float | None
    """Of the values in it; None: there are none."""
    most: float | None
    count: int
    num_chosen: int
    """Of those values that are marked."""


def histogram(values: Sequence[float], chosen: Sequence[bool]) -> list[Bar]:
    """Bars of all finite values, empty ones between them included, with how many of each are chosen. A few different
    values have a bar each, as rewards of 0 and 1 do.
    """
    pairs = [(value, is_one) for value, is_one in zip(values, chosen, strict=True) if math.isfinite(value)]
    distinct = sorted({value for value, _ in pairs})
    if len(distinct) <= _FEW_VALUES:
        return [_bar(value, value, [pair for pair in pairs if pair[0] == value]) for value in distinct]
    low, high = distinct[0], distinct[-1]
    width = _round_width(2 * (high / 2 - low / 2) / MAX_BARS)
    if not width or width < _FLAT * max(abs(low), abs(high)):
        return [_bar(low, high, pairs)]
    first = math.floor(low / width)
    num_bars = max(1, math.ceil(high / width) - first)
    inside: list[list[tuple[float, bool]]] = [[] for _ in range(num_bars)]
    for value, is_one in pairs:
        inside[min(max(math.floor(value / width) - first, 0), num_bars - 1)].append((value, is_one))
    return [
        _bar(_clean((first + index) * width), _clean((first + index + 1) * width), some)
        for index, some in enumerate(inside)
    ]


def _bar(low: float, high: float, some: Sequence[tuple[float, bool]]) -> Bar:
    values = [value for value, _ in some]
    return Bar(
        low=low,
        high=high,
        least=min(values, default=None),
        most=max(values, default=None),
        count=len(some),
        num_chosen=sum(is_one for _, is_one in some),
    )


def _clean(value: float) -> float:
    return float(f"{value:.9g}")


def _round_width(width: float) -> float:
    """The next larger one of 1, 2, 5, 10, 20 and so on."""
    if width < sys.float_info.min:
        return 0.0
    power = 10.0 ** math.floor(math.log10(width))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= width)
