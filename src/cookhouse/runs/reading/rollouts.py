"""Rollouts of a step, as an index to filter and a group at a time to read; plain data, no token parsed twice.

A step is 0-based here, as in the names of the files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.runs.names import ROLLOUTS_FOLDER
from cookhouse.runs.reading.lines import Lines, find_lines
from cookhouse.runs.reading.skeleton import Numbers, Text, count_numbers, read_numbers, read_skeleton

_MAX_MEMBERS = 100_000
"""Of one group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSegment:
    """Neighboring tokens of a rollout that the model saw, or that it sampled."""

    turn: int
    is_sampled: bool
    tokens: Numbers
    logprobs: Numbers | None = None
    """The sampler's, of sampled ones."""

    @property
    def count(self) -> int:
        return count_numbers(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTurn:
    """Turn of a rollout, with its result."""

    reward: float
    metrics: Mapping[str, float]
    logs: Mapping[str, Text]
    is_truncated: bool
    """Whether its answer was cut off."""
    goes_on: bool
    """Whether what it saw begins with all tokens before it: then only what is new is among the segments."""
    entries: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One member of a group."""

    reward: float
    """Of all its turns and of the group."""
    group_reward: float
    group_metrics: Mapping[str, float]
    stop_reason: str
    turns: Sequence[RolloutTurn]
    segments: Sequence[RolloutSegment]
    """In order; a turn has up to two."""

    @property
    def num_tokens(self) -> int:
        return sum(segment.count for segment in self.segments)

    @property
    def num_sampled(self) -> int:
        return sum(segment.count for segment in self.segments if segment.is_sampled)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """Rollouts of one problem."""

    number: int
    """In the batch of its step."""
    version: int
    """Steps behind the weights that sampled it."""
    seconds: float
    tags: Sequence[str]
    rollouts: Sequence[Rollout]
    failures: Sequence[Mapping[str, Any]]
    entries: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Facts about a group for filters and tables."""

    number: int
    line: int
    """Its index in the file."""
    version: int = 0
    tags: tuple[str, ...] = ()
    rewards: tuple[float, ...] = ()
    """Of each rollout, as the following ones."""
    num_turns: tuple[int, ...] = ()
    num_sampled: tuple[int, ...] = ()
    stop_reasons: tuple[str, ...] = ()
    num_failures: int = 0
    problem: str | None = None
    """Why it cannot be read."""


@dataclass(frozen=True, kw_only=True)
class RolloutIndex:
    """The groups of a file, in the order in which they finished."""

    path: Path
    lines: Lines
    groups: tuple[GroupFacts, ...] = ()
    by_number: Mapping[int, GroupFacts] = field(default_factory=dict)

    @property
    def num_rollouts(self) -> int:
        return sum(len(group.rewards) for group in self.groups)


def rollouts_file(folder: Path, step: int, *, is_test: bool) -> Path:
    """The file of a step of a run; of held-out problems, that of the weights after so many steps."""
    return folder / ROLLOUTS_FOLDER / f"{'test-' if is_test else ''}{step:06d}.jsonl"


def rollout_steps(folder: Path, *, is_test: bool) -> list[int]:
    """The steps that have rollouts, in order."""
    mark = "test-" if is_test else ""
    stems = (path.stem.removeprefix(mark) for path in (folder / ROLLOUTS_FOLDER).glob(f"{mark}[0-9]*.jsonl"))
    return sorted(int(stem) for stem in stems if stem.isdecimal() and stem.isascii())


def index_rollouts(path: Path, known: RolloutIndex | None = None) -> RolloutIndex:
    """The index of a file; with `known` of what was appended since, too. Of a file that is not there it is empty. What
    a group holds that cannot be read is its `problem`.
    """
    lines = find_lines(path, None if known is None else known.lines)
    if known is not None and lines is known.lines:
        return known
    goes_on = known is not None and lines.inode == known.lines.inode and _begins_with(lines, known.lines)
    groups = [*known.groups] if known is not None and goes_on else []
    groups += [_facts(path, lines, line) for line in range(len(groups), len(lines))]
    return RolloutIndex(
        path=path, lines=lines, groups=tuple(groups), by_number={group.number: group for group in groups}
    )


def read_group(index: RolloutIndex, number: int) -> RolloutGroup:
    """A group of an index.

    Raises:
        InputError: there is none with that number, or it cannot be read.
    """
    facts = index.by_number.get(number)
    if facts is None:
        raise InputError(f"there is no group {number} in {index.path.name}; it has {len(index.groups):,} groups")
    return _group(index.path, index.lines, facts.line)


def _begins_with(lines: Lines, known: Lines) -> bool:
    return lines.starts[: len(known.starts)] == known.starts


def _facts(path: Path, lines: Lines, line: int) -> GroupFacts:
    try:
        group = _group(path, lines, line)
    except (InputError, OSError) as error:
        return GroupFacts(number=line, line=line, problem=str(error))
    return GroupFacts(
        number=group.number,
        line=line,
        version=group.version,
        tags=tuple(group.tags),
        rewards=tuple(rollout.reward for rollout in group.rollouts),
        num_turns=tuple(len(rollout.turns) for rollout in group.rollouts),
        num_sampled=tuple(rollout.num_sampled for rollout in group.rollouts),
        stop_reasons=tuple(rollout.stop_reason for rollout in group.rollouts),
        num_failures=len(group.failures),
    )


def _group(path: Path, lines: Lines, line: int) -> RolloutGroup:
    row = read_skeleton(path, *lines.span(line))
    try:
        # A group of training has its number next to it; those of held-out problems are numbered by their lines.
        number, value = (int(row["number"]), row["group"]) if "group" in row else (line, row)
        trajectories = value["trajectories"]
        if len(trajectories) > _MAX_MEMBERS:
            raise ValueError(f"it has {len(trajectories):,} members")
        rewards = _floats(value["group_rewards"])
        metrics = value["group_metrics"]
        return RolloutGroup(
            number=number,
            version=int(value["version"]),
            seconds=float(value["seconds"]),
            tags=[str(tag) for tag in value["tags"]],
            rollouts=[
                _rollout(trajectory, reward, of_group)
                for trajectory, reward, of_group in zip(trajectories, rewards, metrics, strict=True)
            ],
            failures=[dict(failure) for failure in value["failures"]],
            entries=list(value.get("entries", [])),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        where = f"line {line + 1} of {path.name}"
        raise InputError(f"{where} is not a group of rollouts: {type(error).__name__}: {error}") from error


def _rollout(value: Mapping[str, Any], group_reward: float, metrics: Mapping[str, Any]) -> Rollout:
    turns, segments = [], []
    for index, turn in enumerate(value["turns"]):
        turns.append(
            RolloutTurn(
                reward=float(turn["reward"]),
                metrics=_named(turn["metrics"]),
                logs=dict(turn["logs"]),
                is_truncated=bool(turn.get("is_truncated", False)),
                goes_on=index == 0 or int(turn["observation"]["shared"]) > 0,
                entries=list(turn.get("entries", [])),
            )
        )
        seen = RolloutSegment(turn=index, is_sampled=False, tokens=turn["observation"]["tokens"])
        sampled = RolloutSegment(turn=index, is_sampled=True, tokens=turn["tokens"], logprobs=turn["logprobs"])
        segments += [segment for segment in (seen, sampled) if segment.count]
    return Rollout(
        reward=sum(turn.reward for turn in turns) + group_reward,
        group_reward=group_reward,
        group_metrics=_named(metrics),
        stop_reason=str(value["stop_reason"]),
        turns=turns,
        segments=segments,
    )


def _floats(values: Any) -> list[float]:
    return [float(value) for value in read_numbers(values)]


def _named(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}
