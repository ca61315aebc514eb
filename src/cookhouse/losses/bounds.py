"""Bounds of a number, defined once where settings and a service both check it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cookhouse.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An interval of numbers. Its text is what stands behind "it must be"."""

    low: float = 0.0
    high: float = math.inf
    has_low: bool = True
    """Whether `low` itself is allowed."""
    has_high: bool = False

    def allows(self, value: float) -> bool:
        """True if a number is in it; none that is not finite is."""
        is_above = value >= self.low if self.has_low else value > self.low
        is_below = value <= self.high if self.has_high else value < self.high
        return math.isfinite(value) and is_above and is_below

    def check(self, name: str, value: float) -> None:
        """Raises `InputError` for a number that is not allowed, by `name`."""
        if not self.allows(value):
            raise InputError(f"{name} is {value}; it must be {self}")

    def __str__(self) -> str:
        low = f"{'at least' if self.has_low else 'above'} {self.low:g}"
        return low if math.isinf(self.high) else f"{low} and {'at most' if self.has_high else 'below'} {self.high:g}"


NOT_NEGATIVE = Bound()
POSITIVE = Bound(has_low=False)

ADAM: Mapping[str, Bound] = {
    # Larger ones leave weights that are finite, and nothing of what they knew.
    "learning_rate": Bound(high=1000.0, has_high=True),
    "beta1": Bound(high=1.0),
    "beta2": Bound(high=1.0),
    "eps": POSITIVE,
    "weight_decay": NOT_NEGATIVE,
    "grad_clip_norm": NOT_NEGATIVE,
}
"""Of an AdamW step."""
