"""Tokens colored by a number that each has: which numbers there are, the scale of each, and the class of a token.

Colors are classes that `tokens.css` has: `l-n4` is logprob, below 0, four tenths of the scale. A page shows one
quantity at a time and says which in `data-by`, so that a switch touches no token.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

NUM_LEVELS = 10
"""Shades on each side of 0."""


class Quantity(StrEnum):
    """Quantity by which a token can be colored."""

    LOGPROB = "logprob"
    """Of the token when it was sampled, in nats; of one that was not sampled, that of the trainer."""
    ADVANTAGE = "advantage"
    """That it was trained with."""
    WEIGHT = "weight"
    """Its loss weight."""
    GAP = "gap"
    """Logprob of the sampler less that of the trainer, in nats."""
    TEACHER = "teacher"
    """Logprob of the teacher less that of the trainer, in nats."""


_LEAST_END: Mapping[Quantity, float] = {
    Quantity.LOGPROB: 1.0,
    Quantity.ADVANTAGE: 0.01,
    Quantity.WEIGHT: 0.01,
    Quantity.GAP: 0.01,
    Quantity.TEACHER: 0.01,
}
"""A scale never ends nearer to 0: rounding errors are no colors."""
_LARGEST_END: Mapping[Quantity, float] = {Quantity.LOGPROB: 10.0, Quantity.GAP: 1.0, Quantity.TEACHER: 5.0}
"""Nor further away, where one outlier would leave all others pale."""

Values = Sequence[float | None]
"""Of each token its number; None: it has none."""


@dataclass(frozen=True, kw_only=True)
class ColorScale:
    """The colors of a quantity on one page."""

    quantity: Quantity
    end: float
    """Magnitude that has the strongest color, and beyond it all have."""
    is_cut: bool
    """Whether some values lie beyond."""
    has_negative: bool
    has_positive: bool

    def level(self, value: float | None) -> int:
        """From -10 to 10; 0 of what is no number, too. What is not finite is as strong as can be."""
        if value is None or math.isnan(value):
            return 0
        return round(NUM_LEVELS * max(-1.0, min(1.0, value / self.end)))

    def css_class(self, value: float | None) -> str:
        """The class of a token; empty: it has no color."""
        return level_class(self.quantity, self.level(value))

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Class and label of each shade from the lowest; only the ends and 0 have a label."""
        low = -NUM_LEVELS if self.has_negative else 0
        high = NUM_LEVELS if self.has_positive or not self.has_negative else 0
        return [(level_class(self.quantity, level), self._label(level)) for level in range(low, high + 1)]

    def _label(self, level: int) -> str:
        if level == 0:
            return "0"
        if abs(level) < NUM_LEVELS:
            return ""
        beyond = (" and less" if level < 0 else " and more") if self.is_cut else ""
        return f"{'−' if level < 0 else ''}{self.end:g}{beyond}"


def level_class(quantity: Quantity, level: int) -> str:
    """The class of a shade; empty at 0."""
    return f"{quantity.value[0]}-{'n' if level < 0 else 'p'}{abs(level)}" if level else ""


def scale_of(quantity: Quantity, values: Iterable[float | None]) -> ColorScale | None:
    """The scale over all values of a page; None where no token has one."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return None
    largest = max(map(abs, known))
    end = min(_round_up(max(_LEAST_END[quantity], min(largest, 1e300))), _LARGEST_END.get(quantity, math.inf))
    return ColorScale(
        quantity=quantity,
        end=end,
        is_cut=largest > end,
        has_negative=min(known) < 0,
        has_positive=max(known) > 0,
    )


def gaps(other: Values | None, trainer: Values | None) -> Values | None:
    """Logprob of the sampler or a teacher less that of the trainer, of each token that has both; None without one of
    the two.
    """
    if other is None or trainer is None:
        return None
    return [None if one is None or own is None else one - own for one, own in zip(other, trainer, strict=True)]


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 and so on that is not below."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(float(f"{factor * power:.0e}") for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))
