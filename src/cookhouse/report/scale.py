"""The scale of an axis: values as pixels, with round values to label it with."""

import math

from cookhouse.telemetry import Metric

WIDTH, HEIGHT = 360, 150
LEFT, RIGHT, TOP, BOTTOM = 54, 10, 8, 22
_FLAT = 1e-9
"""Width of a scale relative to its largest number below which it cannot be labeled."""


def upward_scale(metric: Metric, lowest: float, highest: float) -> "Scale":
    """The scale of a metric's values, with some room above and below them; a share has none below 0 and above 1."""
    margin = (highest - lowest) / 20
    return Scale(
        lowest - margin,
        highest + margin,
        HEIGHT - BOTTOM,
        TOP,
        is_percent=metric.is_share and lowest >= -1 and highest <= 1,
        within=(0.0, 1.0) if metric.is_share and lowest >= 0 and highest <= 1 else None,
    )


class Scale:
    """Maps values to pixels, and knows round values to label it with."""

    def __init__(
        self,
        low: float,
        high: float,
        from_pixel: float,
        to_pixel: float,
        *,
        whole: bool = False,
        is_percent: bool = False,
        within: tuple[float, float] | None = None,
    ) -> None:
        largest = max(abs(low), abs(high))
        if high - low <= largest * _FLAT or high - low < 1e-290:
            room = 0.5 if whole or largest < 1e-280 else largest / 10
            low, high = low - room, high + room
        if within is not None:
            low, high = max(low, within[0]), min(high, within[1])
        self._low, self._high, self._whole, self._is_percent = low, high, whole, is_percent
        self._from, self._to = from_pixel, to_pixel
        self._gap = max(1.0, _round_gap((high - low) / 5)) if whole else _round_gap((high - low) / 5)

    def pixel(self, value: float) -> float:
        return self._from + (value - self._low) / (self._high - self._low) * (self._to - self._from)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values with their labels."""
        first = math.ceil(self._low / self._gap)
        count = math.floor(self._high / self._gap) - first + 1
        return [(value, self._label(value)) for value in ((first + index) * self._gap for index in range(count))]

    def _label(self, value: float) -> str:
        if self._whole:
            return f"{value:,.0f}"
        largest, decimals = max(abs(self._low), abs(self._high)), -math.floor(math.log10(self._gap))
        if self._is_percent:
            return f"{round(value * 100, max(0, decimals - 2)) + 0.0:.{max(0, decimals - 2)}f}%"
        if largest < 1e5 and decimals <= 5:
            return f"{round(value, decimals) + 0.0:.{max(0, decimals)}f}"  # + 0.0: never -0
        return f"{value:.{max(1, math.floor(math.log10(largest)) + decimals + 1)}g}"


def _round_gap(gap: float) -> float:
    """The next larger one of 1, 2, 5, 10, 20, 50 and so on."""
    power: float = 10.0 ** math.floor(math.log10(gap))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= gap * (1 - _FLAT))
