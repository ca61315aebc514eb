"""A group of rollouts as a page shows it: what all share, then each from the first token in which they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.report.token_colors import Quantity, Scale, gaps
from cookhouse.report.token_spans import TokenRun, scales_of
from cookhouse.runs.reading.rollouts import Rollout, RolloutGroup, RolloutTurn
from cookhouse.runs.reading.transcripts import Piece, read_pieces, shared_prefix, turn_starts
from cookhouse.telemetry import after_step, step_number
from cookhouse.view.tokens.cache import RolloutCache
from cookhouse.view.tokens.notes import failure_text, log_text, noted_of, numbers_of
from cookhouse.view.tokens.shown import first_shown, shown_scales, shown_spans
from cookhouse.view.tokens.step_name import StepName
from cookhouse.view.tokens.trained import Trained, missing_colors, trained_on
from cookhouse.view.tokens.words import Words

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
    """What is asked for."""

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
    scales: Mapping[Quantity, Scale],
    *,
    trained: Trained,
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


def _piece(piece: Piece, words: Words, scales: Mapping[Quantity, Scale]) -> dict[str, Any]:
    return {"is_sampled": piece.is_sampled, "start": piece.start, "spans": shown_spans(_run(piece), words, scales)}


def _run(piece: Piece) -> TokenRun:
    values = {
        Quantity.LOGPROB: piece.logprobs,
        Quantity.ADVANTAGE: piece.advantages,
        Quantity.GAP: gaps(piece.logprobs, piece.trained),
    }
    known = {name: each for name, each in values.items() if each is not None}
    return TokenRun(tokens=piece.tokens, values=known, start=piece.start, before=piece.before)
