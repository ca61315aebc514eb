"""The rollouts of a step that were found, a line each, and the bars of their rewards."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cookhouse.errors import InputError
from cookhouse.report.histogram import histogram
from cookhouse.report.last_message import last_message
from cookhouse.runs.reading.rollout_filter import FoundRollout, RolloutFilter
from cookhouse.runs.reading.rollouts import GroupFacts, Rollout, RolloutGroup, RolloutIndex
from cookhouse.runs.reading.skeleton import read_text
from cookhouse.runs.reading.transcripts import read_tokens
from cookhouse.view.tokens.cache import RolloutCache
from cookhouse.view.tokens.words import Words

SORTS = ("group", "-group", "reward", "-reward", "turns", "-turns", "tokens", "-tokens")
_CELL_CHARACTERS = 80
_CELL_TOKENS = 128
_BAR_HEIGHT = 100
_LOGGED = {"asked": "question", "answered": "answer"}
"""What an environment calls these in its logs."""


def sorted_rollouts(found: Sequence[FoundRollout], sort: str) -> Sequence[FoundRollout]:
    """By a column; equal ones stay in their order."""
    name = sort.removeprefix("-")
    keys: Mapping[str, Callable[[FoundRollout], float]] = {
        "group": lambda each: each.group.number,
        "reward": lambda each: each.reward,
        "turns": lambda each: each.group.num_turns[each.member],
        "tokens": lambda each: each.group.num_sampled[each.member],
    }
    return sorted(found, key=keys[name], reverse=sort.startswith("-"))


def lines_of(
    cache: RolloutCache, index: RolloutIndex, found: Sequence[FoundRollout], words: Words
) -> list[dict[str, Any]]:
    """A line for each; a group is read once for all of its own."""
    groups: dict[int, RolloutGroup | None] = {}
    lines = []
    for group, member in found:
        if group.number not in groups:
            groups[group.number] = _readable(cache, index, group.number)
        lines.append(_line(FoundRollout(group, member), groups[group.number], words))
    return lines


def group_lines(
    cache: RolloutCache, index: RolloutIndex, groups: Sequence[GroupFacts], words: Words
) -> list[dict[str, Any]]:
    """A line for each group: what was asked, the rewards, and the answers that got the most and the least."""
    return [_group_line(facts, _readable(cache, index, facts.number), words) for facts in groups if not facts.problem]


def bars_of(index: RolloutIndex, found: Sequence[FoundRollout], wanted: RolloutFilter) -> list[dict[str, Any]]:
    """The rewards of all rollouts, with how many of each bar were found; heights in hundredths of the highest."""
    ids = {(each.group.line, each.member) for each in found}
    pairs = [
        (reward, (group.line, member) in ids) for group in index.groups for member, reward in enumerate(group.rewards)
    ]
    bars = histogram([reward for reward, _ in pairs], [is_found for _, is_found in pairs])
    highest = max((bar.count for bar in bars), default=1)
    return [
        {
            "place": place,
            "low": bar.low,
            "high": bar.high,
            "count": bar.count,
            "num_found": bar.num_chosen,
            "height": _height(bar.count, highest),
            "found_height": _height(bar.num_chosen, highest),
            "is_chosen": (wanted.min_reward, wanted.max_reward) == (bar.least, bar.most),
            "label": f"reward {bar.low:.4g}" + ("" if bar.low == bar.high else f" to {bar.high:.4g}"),
            "least": bar.least,
            "most": bar.most,
        }
        for place, bar in enumerate(bars)
    ]


def _height(count: int, highest: int) -> float:
    """A bar of one among thousands can be seen."""
    return round(max(2.0, _BAR_HEIGHT * count / highest), 1) if count else 0.0


def _readable(cache: RolloutCache, index: RolloutIndex, number: int) -> RolloutGroup | None:
    try:
        return cache.group(index, number)
    except (InputError, OSError):  # the file was cut since it was indexed
        return None


def _line(found: FoundRollout, group: RolloutGroup | None, words: Words) -> dict[str, Any]:
    rollout = None if group is None else group.rollouts[found.member]
    return {
        "group": found.group.number,
        "member": found.member,
        "tags": list(found.group.tags),
        "reward": found.reward,
        "num_turns": found.group.num_turns[found.member],
        "num_sampled": found.group.num_sampled[found.member],
        "stop_reason": found.group.stop_reasons[found.member],
        "asked": "" if rollout is None else _said(rollout, "asked", words),
        "answered": "" if rollout is None else _said(rollout, "answered", words),
    }


def _group_line(facts: GroupFacts, group: RolloutGroup | None, words: Words) -> dict[str, Any]:
    members = range(len(facts.rewards))
    best = max(members, key=lambda member: facts.rewards[member], default=None)
    worst = min(members, key=lambda member: facts.rewards[member], default=None)

    def said(member: int | None, what: str) -> str:
        return "" if group is None or member is None else _said(group.rollouts[member], what, words)

    return {
        "number": facts.number,
        "tags": list(facts.tags),
        "num_rollouts": len(facts.rewards),
        "mean_reward": sum(facts.rewards) / len(facts.rewards) if facts.rewards else None,
        "least": None if worst is None else facts.rewards[worst],
        "most": None if best is None else facts.rewards[best],
        "asked": said(best, "asked"),
        "best": said(best, "answered"),
        "worst": said(worst, "answered"),
        "num_failures": facts.num_failures,
    }


def _said(rollout: Rollout, what: str, words: Words) -> str:
    """The message that it was asked first, or the end of what it answered last: as its environment logged it, else
    decoded.
    """
    logs = [turn.logs[_LOGGED[what]] for turn in rollout.turns[-1:] if _LOGGED[what] in turn.logs]
    if logs:
        return _short(read_text(logs[0], 10 * _CELL_CHARACTERS)[0])
    place = 0
    ends = []
    for segment in rollout.segments:
        place += segment.count
        if segment.is_sampled == (what == "answered"):
            ends.append((place, segment.count))
    if not ends:
        return ""
    end, length = ends[0] if what == "asked" else ends[-1]
    count = min(length, _CELL_TOKENS)
    text = words.decode(read_tokens(rollout, end - count, count))
    return _short(last_message(text) if what == "asked" else text)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CELL_CHARACTERS else f"…{line[1 - _CELL_CHARACTERS :]}"
