"""Values that a step recorded of the tokens that it was trained on: advantages-STEP.jsonl and trained-STEP.jsonl.

A line is of one group, and holds of each rollout, of each turn, a number for each sampled token; one number where they
are all equal, and nothing where the turn was not trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from cookhouse.errors import InputError
from cookhouse.runs.names import ROLLOUTS_FOLDER
from cookhouse.runs.reading.lines import Lines, find_lines
from cookhouse.runs.reading.skeleton import FarNumbers, Numbers, read_numbers, read_skeleton

GroupKey: TypeAlias = tuple[int, int]
"""The step that a group was planned for, and its number in that step's batch."""
OfTurn: TypeAlias = Numbers | float | None
"""Of each token, or of all of them; None: it was not trained on."""


@dataclass(frozen=True, kw_only=True)
class ValueFile:
    """File with the places of the groups' lines."""

    path: Path
    key: str
    lines: Lines
    of_group: Mapping[GroupKey, int] = field(default_factory=dict)


def advantages_file(folder: Path, step: int) -> Path:
    """File of the advantages with which a step trained its groups."""
    return folder / ROLLOUTS_FOLDER / f"advantages-{step:06d}.jsonl"


def trained_file(folder: Path, step: int) -> Path:
    """The trainer's logprobs of the tokens that a step was trained on."""
    return folder / ROLLOUTS_FOLDER / f"trained-{step:06d}.jsonl"


def index_values(path: Path, key: str, known: ValueFile | None = None) -> ValueFile:
    """The groups of a file whose lines hold their values under `key`; none where there is no such file.

    Raises:
        InputError: the file holds something else.
    """
    lines = find_lines(path, None if known is None else known.lines)
    if known is not None and lines is known.lines:
        return known
    of_group = {}
    for line in range(len(lines)):
        row = read_skeleton(path, *lines.span(line))
        try:
            of_group[int(row["step"]), int(row["number"])] = line
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"line {line + 1} of {path.name} is not of a group: {error}") from error
    return ValueFile(path=path, key=key, lines=lines, of_group=of_group)


def read_values(file: ValueFile, group: GroupKey) -> list[list[OfTurn]] | None:
    """Of each rollout, of each turn; None: the file has nothing of the group.

    Raises:
        InputError: the line holds something else.
    """
    line = file.of_group.get(group)
    if line is None:
        return None
    row = read_skeleton(file.path, *file.lines.span(line))
    try:
        return [_turns(rollout) for rollout in _list(row[file.key])]
    except (KeyError, TypeError) as error:
        raise InputError(f"line {line + 1} of {file.path.name} holds no {file.key}: {error}") from error


def values_of(turn: OfTurn, first: int, count: int) -> list[float | None]:
    """Of `count` tokens of a turn from `first`; None for those of which it has none."""
    if turn is None or isinstance(turn, int | float):
        return [turn] * count
    found = [value if isinstance(value, int | float) else None for value in read_numbers(turn, first, count)]
    return [*found, *[None] * (count - len(found))]


def _turns(value: Any) -> list[OfTurn]:
    return list(map(_of_turn, _list(value)))


def _of_turn(value: Any) -> OfTurn:
    if value is None or isinstance(value, FarNumbers | list | int | float):
        return value
    raise TypeError(f"a turn has {type(value).__name__}")


def _list(value: Any) -> Sequence[Any]:
    if isinstance(value, FarNumbers):  # of many turns a number each
        return read_numbers(value)
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} is no list")
    return value
