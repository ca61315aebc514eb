"""Properties of a metric besides its values: which way it is better, where it stands, and how it reads."""

import math
import sys
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Final, Literal, TypeAlias

Direction: TypeAlias = Literal["less", "more"]
"""Which way a metric is better."""
COMPANIONS = ("_stderr", "_std", "_n", "_low", "_high")
"""Ends of the names of figures about another metric."""
CHOSEN: Final = -sys.maxsize
"""Place as a headline of the metric that the setting `headline` names: before all others, held out or not."""


@dataclass(frozen=True)
class Metric:
    """A metric as it is declared, or as it is known by its whole name."""

    name: str
    """Of a declared one the end of its names, in whole parts: `correct` is also `test/gsm8k/correct`. The groups below
    it, as `test/gsm8k/correct/easy`, have its direction, share and label, and no place.
    """
    _: KW_ONLY
    direction: Direction | None = None
    """Whether less or more is better; None: neither is."""
    is_share: bool = False
    """Whether it is a share of something, in [0, 1], and reads in percent."""
    label: str = ""
    """What a sentence calls it; empty: its name, without `test/`."""
    chart: int | None = None
    """Its place among the charts above all others, the lowest first; those of cookhouse are 10, 20 and so on. None:
    among those of its prefix.
    """
    headline: int | None = None
    """Its place among those that tell most of a run, the lowest first, as `chart`. What is held out goes before what is
    not, and with None behind the others; what is not held out is not ranked with None.
    """
    line: str = ""
    """How the terminal's line of a step or of an evaluation shows it, as a format of its value: "loss {:.4f}". Empty:
    that of a step does not, and that of an evaluation only if it shows nothing else.
    """

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values; None where there is none, or neither way is better."""
        found = list(values)
        if self.direction is None or not found:
            return None
        return min(found) if self.direction == "less" else max(found)

    def text(self, value: float | None) -> str:
        """A value as a person reads it: a share in percent, what was not measured as a dash."""
        if value is None:
            return "-"
        if self.is_share and -1 <= value <= 1:  # a user's own may be in percent already
            return f"{value + 0.0:.1%}".replace(".0%", "%").replace("-0%", "0%")
        return number(value)

    def change_text(self, before: float | None, after: float | None) -> str:
        """Its values before and after, or the one of them that was measured."""
        return " → ".join(self.text(value) for value in (before, after) if value is not None) or "-"

    def difference_text(self, before: float, after: float) -> str:
        """Difference, with its sign; of a share, in percentage points."""
        before, after = as_float(before), as_float(after)
        change = after - before
        sign = "+" if change > 0 else "−" if change < 0 else "±"
        if self.is_share and max(abs(before), abs(after)) <= 1:
            return f"{sign}{abs(change) * 100:.1f}".removesuffix(".0") + " points"
        return f"{sign}{number(abs(change))}"


def number(value: float) -> str:
    """A value as a person reads it: whole, or to five digits."""
    value = as_float(value)
    is_whole = abs(value) < 1e9 and (abs(value) >= 1e4 or value == round(value))
    return f"{value + 0.0:,.0f}" if is_whole else f"{value:.5g}"  # + 0.0: never -0


def as_float(value: float) -> float:
    """As a float; a whole number of hundreds of digits, which is none, as infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
