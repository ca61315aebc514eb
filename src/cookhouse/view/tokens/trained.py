"""What the step noted that trained on a group: its advantages, and the logprobs of the trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cookhouse.report.token_colors import Quantity
from cookhouse.runs.reading.rollouts import RolloutGroup
from cookhouse.runs.reading.skeleton import read_numbers
from cookhouse.runs.reading.token_values import OfTurn, advantages_file, read_values, trained_file
from cookhouse.runs.reading.transcripts import TokenValues
from cookhouse.view.tokens.cache import RolloutCache
from cookhouse.view.tokens.step_name import StepName

_MAX_TURNS = 8
_MAX_TOKENS = 2000


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What the step noted that trained on the group."""

    step: int | None
    """0-based; None: no step did, as far as the files say."""
    advantages: Sequence[Sequence[OfTurn]] | None = None
    logprobs: Sequence[Sequence[OfTurn]] | None = None

    def values(self, member: int) -> TokenValues:
        return TokenValues(advantages=_at(self.advantages, member), trained=_at(self.logprobs, member))

    def advantage_text(self, member: int) -> str:
        """Of each turn; a range where its tokens differ."""
        turns = _at(self.advantages, member)
        return ", ".join(map(_advantage, turns[:_MAX_TURNS])) + (", …" if len(turns) > _MAX_TURNS else "")


def trained_on(group: RolloutGroup, name: StepName, folder: Path, cache: RolloutCache, max_lag: int) -> Trained:
    """`max_lag`: how many steps later than it was planned a group may be trained on."""
    if name.is_test:
        return Trained(step=None)
    key = (name.step, group.number)
    for step in range(name.step, name.step + max_lag + 1):
        found = cache.values(advantages_file(folder, step), "advantages")
        if (advantages := read_values(found, key)) is not None:
            logprobs = read_values(cache.values(trained_file(folder, step), "logprobs"), key)
            return Trained(step=step, advantages=advantages, logprobs=logprobs)
    return Trained(step=None)


def missing_colors(name: StepName, trained: Trained) -> Mapping[Quantity, str]:
    """Why something is not there to color by."""
    weight = "weights are shown with the examples of the step that trained on it"
    if name.is_test:
        reason = "held-out rollouts are not trained on"
        return {Quantity.ADVANTAGE: reason, Quantity.GAP: reason, Quantity.WEIGHT: reason}
    if trained.step is None:
        reason = "no step has trained on this group, or its run kept no advantages"
        return {Quantity.ADVANTAGE: reason, Quantity.GAP: reason, Quantity.WEIGHT: reason}
    return {
        Quantity.WEIGHT: weight,
        Quantity.GAP: "the run kept no logprobs of the trainer; one that is started with this version does"
        if trained.logprobs is None
        else "the trainer noted no logprobs of these tokens",
    }


def _advantage(value: OfTurn) -> str:
    if value is None:
        return "-"
    if isinstance(value, int | float):
        return f"{value:.4g}"
    tokens = [each for each in read_numbers(value, 0, _MAX_TOKENS) if isinstance(each, int | float)]
    ends = dict.fromkeys(f"{end:.4g}" for end in (min(tokens), max(tokens))) if tokens else ["-"]
    return " to ".join(ends)


def _at(several: Sequence[Sequence[OfTurn]] | None, member: int) -> Sequence[OfTurn]:
    return several[member] if several is not None and member < len(several) else ()
