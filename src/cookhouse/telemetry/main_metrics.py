"""The metrics that a run writes: those that decide, or all."""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypeVar

from cookhouse.telemetry.keys import TRAIN_REWARD

V = TypeVar("V", float, float | str)
MetricChoice: TypeAlias = Literal["main", "all"]

DETAILS: Final = (
    *("env/SCOPE/total_turns", "env/SCOPE/total_ac_tokens", "env/SCOPE/stop/REASON"),
    *("env/SCOPE/answer_characters", "env/SCOPE/position_bias", "env/SCOPE/win_minus_loss"),
    *("optim/loss", "optim/kl_ppo_epochs_v2"),
    *("rollouts/groups_resampled", "rollouts/lag_max"),
    *("time/group_seconds_mean", "time/group_seconds_max", "time/tokens_per_second"),
    "teacher_kl_at/POSITIONS",
)
"""Names that are no main metrics, also behind `test/` and `teacher/`; a word in capitals stands for any part."""
DETAILS_OF_ONE: Final = (
    *("reward/total_std", "total_groups", "total_episodes", "by_group/KIND", "frac_truncated"),
    *("ac_tokens_per_turn", "ob_tokens_per_turn", "turns_per_episode"),
    # What cookhouse's own environments measure besides `correct`.
    *("format", "malformed", "tool_calls", "tool_errors", "invalid_move", "allowed", "answerer/KIND"),
    *("order_disagreement", "rule", "agreement", "win_share", "win_share_chosen", "win_share_rejected"),
)
"""The same of one environment among several, behind `env/TAG/`."""
FAILURES: Final = (
    *("rollouts/failures/env", "rollouts/failures/sampling"),
    *("rollouts/retried", "rollouts/dropped", "rollouts/groups_failed"),
)
"""Counts of what went wrong: main metrics of a step where they are not 0."""
_ERRORS = ("_stderr", "_n")
"""Ends of the names by which the run says how sure a mean is: of training, for its reward alone."""


def main_metrics(values: Mapping[str, V], named: Collection[str] = ()) -> Mapping[str, V]:
    """The main ones of some metrics, in their order; `named` are main ones, too. What is not known here, as a user's
    own, is one.
    """
    return {name: value for name, value in values.items() if name in named or _is_main(name, values)}


def _is_main(name: str, values: Mapping[str, Any]) -> bool:
    plain = _plain(name)
    if plain in FAILURES:
        return bool(values[name] != 0)
    end = next((end for end in _ERRORS if name.endswith(end) and name.removesuffix(end) in values), None)
    if end is None or not plain.startswith("env/"):
        return not is_detail(name)
    mean = name.removesuffix(end)
    return not is_detail(mean) and (plain != name or mean == TRAIN_REWARD)


@lru_cache(maxsize=4096)
def is_detail(name: str) -> bool:
    """True if a metric is written with `metrics=all` alone, wherever it stands."""
    return _DETAIL.fullmatch(_plain(name)) is not None


def _plain(name: str) -> str:
    return name.removeprefix("test/").removeprefix("teacher/")


def _pattern(name: str) -> str:
    return re.sub("[A-Z]+", "[^/]+", name)


_DETAIL = re.compile(
    "|".join((*map(_pattern, DETAILS), f"env/(?!all/)[^/]+/(?:{'|'.join(map(_pattern, DETAILS_OF_ONE))})"))
)
