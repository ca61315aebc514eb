"""The metric that tells most of a run, chosen in this one place, and metrics as a person reads them."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cookhouse.telemetry import keys

_FIRST = (
    keys.TEST_EXACT_MATCH,
    keys.TEST_REWARD,
    "test/correct",
    keys.TEST_PAIR_ACCURACY,
    keys.TEST_NLL,
    keys.TRAIN_REWARD,
    keys.PAIR_ACCURACY,
    keys.TRAIN_LOSS,
    keys.PAIR_LOSS,
    keys.POLICY_LOSS,
)
"""The first one that a run has tells most of it; another one that is held out goes before what is trained on."""
COMPANIONS = ("_stderr", "_std", "_n", "_low", "_high")
"""Ends of the names of figures about another metric."""
_LABELS = {
    keys.TEST_NLL: "held-out loss",
    keys.TEST_REWARD: "held-out reward",
    keys.TRAIN_REWARD: "reward in training",
    keys.TRAIN_LOSS: "training loss",
    keys.PAIR_LOSS: "training loss",
    keys.PAIR_ACCURACY: "accuracy in training",
    keys.POLICY_LOSS: "policy loss",
}
_SHARES = {
    "exact_match",
    "accuracy",
    "correct",
    "correct_loose",
    "correct_norm",
    "failed",
    "format",
    "instructions_loose",
    "instructions_strict",
    "malformed",
    "answered_chosen",
    "answered_rejected",
    "answer_win_rate",
    "win_rate_chosen",
    "win_rate_initial",
}
"""Parts of the names of metrics that are shares, in [0, 1], and read in percent."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The metric that tells most of a run."""

    name: str
    before: float | None
    """Of its first step, before anything was learned; None if it was not measured."""
    after: float | None
    """The last one since; None if it was measured no more."""

    @property
    def text(self) -> str:
        """In a few words: `exact match 0% → 96%`."""
        rounded = (None if value is None else float(f"{value:.3g}") for value in (self.before, self.after))
        return f"{label_of(self.name)} {change_text(self.name, *rounded)}"


def ranked(names: Iterable[str]) -> list[str]:
    """Those of some metrics that tell of a run, the most telling one first."""
    known = dict.fromkeys(names)
    tested = [name for name in _FIRST if name.startswith("test/")]
    others = [name for name in known if name.startswith("test/") and not name.endswith((*COMPANIONS, "_tokens"))]
    return [name for name in dict.fromkeys((*tested, *others, *_FIRST)) if name in known]


def choose_headline(
    names: Iterable[str], first: Mapping[str, Any], last: Callable[[str], Mapping[str, Any]]
) -> Headline | None:
    """The most telling one of some metrics, from the row of the first step and the last row that has a metric.

    What was measured before and after goes before what was measured once.
    """
    told = [_told(name, first, last(name)) for name in ranked(names)]
    whole = [each for each in told if None not in (each.before, each.after)]
    some = [each for each in told if (each.before, each.after) != (None, None)]
    return next(iter((*whole, *some)), None)


def _told(name: str, first: Mapping[str, Any], last: Mapping[str, Any]) -> Headline:
    before, after = _number(first.get(name)), _number(last.get(name))
    return Headline(name=name, before=before, after=after if last.get("step") != first.get("step") else None)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < sys.float_info.max else None


def label_of(name: str) -> str:
    """What a metric is called in a sentence."""
    return _LABELS.get(name) or name.removeprefix("test/").replace("exact_match", "exact match")


def is_share(name: str) -> bool:
    """Whether a metric is a share of something, as far as its name tells."""
    parts = name.removesuffix("_stderr").split("/")
    return bool(_SHARES & set(parts)) or any(part.startswith("pass@") for part in parts)


def number(value: float) -> str:
    """A value as a person reads it: whole, or to five digits."""
    is_whole = abs(value) < 1e9 and (abs(value) >= 1e4 or value == round(value))
    return f"{value + 0.0:,.0f}" if is_whole else f"{value:.5g}"  # + 0.0: never -0


def metric_text(name: str, value: float | None) -> str:
    """A metric's value as a person reads it: a share in percent, what was not measured as a dash."""
    if value is None:
        return "-"
    if is_share(name) and -1 <= value <= 1:  # a user's own may be in percent already
        return f"{value + 0.0:.1%}".replace(".0%", "%").replace("-0%", "0%")
    return number(value)


def change_text(name: str, before: float | None, after: float | None) -> str:
    """A metric before and after, or the one of them that was measured."""
    return " → ".join(metric_text(name, value) for value in (before, after) if value is not None) or "-"


def difference_text(name: str, before: float, after: float) -> str:
    """How far a metric went, with its sign; of a share, in percentage points."""
    change = after - before
    sign = "+" if change > 0 else "−" if change < 0 else "±"
    if is_share(name) and max(abs(before), abs(after)) <= 1:
        return f"{sign}{abs(change) * 100:.1f}".removesuffix(".0") + " points"
    return f"{sign}{number(abs(change))}"
