"""A group of rollouts as a page shows it: what all share, then each from the first token in which they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.report.token_colors import ColorScale, Quantity, gaps
from cookhouse.report.token_spans import TokenRun, scales_of
from cookhouse.runs.reading.rollouts import Rollout, RolloutGroup, RolloutTurn
from cookhouse.runs.reading.skeleton import FarNumbers, FarText, read_numbers, read_text
from cookhouse.runs.reading.token_values import OfTurn, advantages_file, read_values, trained_file
from cookhouse.runs.reading.transcripts import Piece, TokenValues, read_pieces, shared_prefix, turn_starts
from cookhouse.telemetry import after_step, entries_from_json, entries_to_json, step_number
from cookhouse.view.tokens.cache import RolloutCache
from cookhouse.view.tokens.shown import first_shown, shown_scales, shown_spans
from cookhouse.view.tokens.step_name import StepName
from cookhouse.view.tokens.words import Words

_MAX_TURNS = 8
_MAX_TOKENS = 2000


@dataclass(frozen=True, kw_only=True)
class TrainedGroup:
    """Notes of the step that trained on the group."""

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


def trained_on(group: RolloutGroup, name: StepName, folder: Path, cache: RolloutCache, max_lag: int) -> TrainedGroup:
    """`max_lag`: how many steps later than it was planned a group may be trained on."""
    if name.is_test:
        return TrainedGroup(step=None)
    key = (name.step, group.number)
    for step in range(name.step, name.step + max_lag + 1):
        found = cache.values(advantages_file(folder, step), "advantages")
        if (advantages := read_values(found, key)) is not None:
            logprobs = read_values(cache.values(trained_file(folder, step), "logprobs"), key)
            return TrainedGroup(step=step, advantages=advantages, logprobs=logprobs)
    return TrainedGroup(step=None)


def missing_colors(name: StepName, trained: TrainedGroup) -> Mapping[Quantity, str]:
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


MEMBERS_ON_PAGE = 32
TOKENS_OF_EACH = 300
"""Of each rollout, where several stand side by side."""
TOKENS_OF_ONE = 2000
"""Of a rollout that stands alone."""
_SHARED_TOKENS = 1000
"""Of the end of what all share."""
_MAX_TURN_LINKS = 200


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """View that is asked for."""

    member: int | None = None
    """Only this one; None: all side by side."""
    start: int | None = None
    """From this token on; None: from the first in which they differ."""
    by: str = ""
    """What tokens are colored by at first."""


def group_values(
    group: RolloutGroup,
    name: StepName,
    folder: Path,
    cache: RolloutCache,
    words: Words,
    *,
    view: GroupView,
    max_lag: int,
) -> dict[str, Any]:
    """Plain values of a group. Raises `InputError` for a member that it has not."""
    trained = trained_on(group, name, folder, cache, max_lag)
    chosen = range(min(len(group.rollouts), MEMBERS_ON_PAGE)) if view.member is None else [view.member]
    prefix = shared_prefix(group.rollouts) if view.member is None else 0
    start = prefix if view.start is None else view.start
    count = TOKENS_OF_EACH if view.member is None else TOKENS_OF_ONE
    pieces = {member: read_pieces(group.rollouts[member], start, count, trained.values(member)) for member in chosen}
    shared_start = max(0, prefix - _SHARED_TOKENS)
    shared = read_pieces(group.rollouts[0], shared_start, prefix - shared_start, trained.values(0)) if prefix else []
    alike = _alike([group.rollouts[member] for member in chosen]) if view.member is None else {}
    scales = scales_of(map(_run, [*shared, *(piece for some in pieces.values() for piece in some)]))
    return {
        "number": group.number,
        "weights": after_step(group.version),
        "seconds": group.seconds,
        "tags": list(group.tags),
        "num_members": len(group.rollouts),
        "trained_at": None if trained.step is None else step_number(trained.step),
        "alike": alike,
        "shared": {
            "num_tokens": prefix,
            "num_before": shared_start,
            "pieces": [_piece(piece, words, scales) for piece in shared],
        },
        "members": [
            _member(group.rollouts[member], member, pieces[member], start, words, scales, trained=trained, alike=alike)
            for member in chosen
        ],
        "num_more_members": len(group.rollouts) - MEMBERS_ON_PAGE if view.member is None else 0,
        "member": view.member,
        "by": first_shown(scales, view.by),
        "scales": shown_scales(
            scales, missing_colors(name, trained), logprob="how likely the token was when it was sampled"
        ),
        "failures": [failure_text(failure) for failure in group.failures[:20]],
        "entries": noted_of(group.entries),
    }


def _member(
    rollout: Rollout,
    member: int,
    pieces: Sequence[Piece],
    start: int,
    words: Words,
    scales: Mapping[Quantity, ColorScale],
    *,
    trained: TrainedGroup,
    alike: Mapping[str, str],
) -> dict[str, Any]:
    end = start + sum(len(piece.tokens) for piece in pieces)
    shown = sorted({piece.turn for piece in pieces})
    starts = turn_starts(rollout)
    return {
        "member": member,
        "reward": rollout.reward,
        "group_reward": rollout.group_reward,
        "advantage": trained.advantage_text(member),
        "stop_reason": rollout.stop_reason,
        "num_turns": len(rollout.turns),
        "num_tokens": rollout.num_tokens,
        "num_sampled": rollout.num_sampled,
        "start": start,
        "end": end,
        "metrics": numbers_of(rollout.group_metrics),
        "turns": [
            {
                **_turn(rollout.turns[turn], turn, alike),
                "pieces": [_piece(piece, words, scales) for piece in pieces if piece.turn == turn],
            }
            for turn in shown
        ],
        "turn_starts": [{"turn": turn + 1, "start": place} for turn, place in enumerate(starts[:_MAX_TURN_LINKS])],
    }


def _alike(rollouts: Sequence[Rollout]) -> dict[str, str]:
    """Logs that say the same of all rollouts, such as the question: they are shown once."""
    if len(rollouts) < 2:
        return {}
    logs = [{name: log_text(far) for turn in rollout.turns for name, far in turn.logs.items()} for rollout in rollouts]
    return {name: text for name, text in logs[0].items() if all(each.get(name) == text for each in logs)}


def _turn(turn: RolloutTurn, index: int, alike: Mapping[str, str]) -> dict[str, Any]:
    calls, errors = turn.metrics.get("tool_calls"), turn.metrics.get("tool_errors", 0)
    return {
        "turn": index + 1,
        "reward": turn.reward,
        "tool_calls": None if calls is None else f"{calls:g} tool calls" + (f", {errors:g} failed" if errors else ""),
        "is_truncated": turn.is_truncated,
        "goes_on": turn.goes_on,
        "metrics": numbers_of(turn.metrics),
        "logs": {name: text for name, far in turn.logs.items() if (text := log_text(far)) != alike.get(name)},
        "entries": noted_of(turn.entries),
    }


def _piece(piece: Piece, words: Words, scales: Mapping[Quantity, ColorScale]) -> dict[str, Any]:
    return {"is_sampled": piece.is_sampled, "start": piece.start, "spans": shown_spans(_run(piece), words, scales)}


def _run(piece: Piece) -> TokenRun:
    values = {
        Quantity.LOGPROB: piece.logprobs,
        Quantity.ADVANTAGE: piece.advantages,
        Quantity.GAP: gaps(piece.logprobs, piece.trained),
    }
    known = {name: each for name, each in values.items() if each is not None}
    return TokenRun(tokens=piece.tokens, values=known, start=piece.start, before=piece.before)


_LOG_CHARACTERS = 4000


def noted_of(values: Sequence[Any]) -> list[dict[str, Any]]:
    """Notes of a run, as far as a page shows them."""
    try:
        return entries_to_json(entries_from_json([_near(value) for value in values]))
    except (InputError, RecursionError) as error:
        return [{"note": f"what was noted here cannot be read: {error}"}]


def _near(value: Any) -> Any:
    """With what was left in the file."""
    if isinstance(value, FarText):
        return log_text(value)
    if isinstance(value, FarNumbers):
        return read_numbers(value, 0, 100)
    if isinstance(value, dict):
        return {name: _near(each) for name, each in value.items()}
    return [_near(each) for each in value] if isinstance(value, list) else value


def log_text(text: str | FarText) -> str:
    """The beginning of a log, which says what was left out."""
    shown, left_out = read_text(text, _LOG_CHARACTERS)
    return f"{shown}… ({left_out:,} more bytes)" if left_out else shown


def numbers_of(values: Mapping[str, float]) -> dict[str, str]:
    """Metrics in words."""
    return {name: f"{value:.4g}" for name, value in values.items()}


def failure_text(failure: Mapping[str, Any]) -> str:
    """Text on a member that failed, and the reason."""
    who, attempt, origin, outcome, reason = (
        _near(failure.get(name, "")) for name in ("member", "attempt", "origin", "outcome", "reason")
    )
    return f"member {who}, attempt {attempt}, {origin}, {outcome}: {reason}"
