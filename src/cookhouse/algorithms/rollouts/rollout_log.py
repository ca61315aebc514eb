"""The rollouts of a run on disk: transcripts to read, and what a resumed run need not sample again.

rollouts/000012.jsonl             groups planned for step 12, one line each, written the moment they finish
rollouts/steps.jsonl              for each step: the groups it was trained on, and those planned but left for later
rollouts/advantages-000012.jsonl  what step 12 trained its groups with: of each trajectory, of each turn, the advantage
                                  of each sampled token, or one number where they are all equal
rollouts/trained-000012.jsonl     the logprobs that these tokens had in the weights that trained on them, laid out the
                                  same way; null for a turn that was not trained on
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cookhouse.algorithms.base.json_lines import json_lines
from cookhouse.errors import InputError
from cookhouse.files import append_line, file_errors, whole_lines, write_whole
from cookhouse.rl import GroupAdvantages, TrajectoryGroup, group_from_json, group_to_json

GroupLogprobs: TypeAlias = Sequence[Sequence[Sequence[float] | None]]
"""Of each trajectory, of each turn, of each sampled token; None for a turn that was not trained on."""


class GroupId(NamedTuple):
    """A group of the data: the step that it was planned for, and its number in that step's batch, from 0."""

    step: int
    number: int


@dataclass(frozen=True, kw_only=True)
class RestoredRollouts:
    """Position of sampling when a step was about to begin."""

    left: Sequence[GroupId] = ()
    """Planned for earlier steps, and not trained on."""
    next_step: int = 0
    """The first step whose groups were not planned yet."""
    finished: Mapping[GroupId, TrajectoryGroup] = field(default_factory=dict)
    """Sampled already, from weights that a run from here on has had."""


class RolloutLog:
    """Reads and writes the rollouts of one run directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with file_errors(folder):
            folder.mkdir(exist_ok=True)

    def keep(self, group_id: GroupId, group: TrajectoryGroup) -> None:
        """Add a finished group.

        Raises:
            InputError: the disk is full or may not be written.
        """
        line = f'{{"number":{group_id.number},"group":{group_to_json(group)}}}\n'
        path = self._groups_path(group_id.step)
        # Not forced to the disk: it is there when the process dies, and checkpoints do not depend on it.
        with file_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(line)

    def keep_advantages(self, step: int, advantages: Mapping[GroupId, GroupAdvantages]) -> None:
        """Record what a step trains its groups with."""
        rows = [
            {
                "step": group_id.step,
                "number": group_id.number,
                "advantages": [list(map(_short, turns)) for turns in group],
            }
            for group_id, group in advantages.items()
        ]
        path = self._folder / f"advantages-{step:06d}.jsonl"
        write_whole(path, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))

    def keep_logprobs(self, step: int, logprobs: Mapping[GroupId, GroupLogprobs]) -> None:
        """Record how likely the trainer found what a step trains on. Raises `InputError` where that cannot be."""
        rows = [
            {"step": group_id.step, "number": group_id.number, "logprobs": group}
            for group_id, group in logprobs.items()
        ]
        write_whole(self._folder / f"trained-{step:06d}.jsonl", json_lines(rows), is_synced=False)

    def close_step(self, step: int, used: Sequence[GroupId], left: Sequence[GroupId], next_step: int) -> None:
        """Record what a step is trained on, and what is left for later ones."""
        row = {"step": step, "used": used, "left": left, "next_step": next_step}
        append_line(self._steps_path, json.dumps(row))

    def restore(self, step: int) -> RestoredRollouts:
        """Restore what can be used again when training goes on at `step`; what came after, in the run that broke off,
        is cut.

        Raises:
            InputError: a file does not hold what this class wrote.
        """
        rows = [row for row in self._rows(self._steps_path) if row["step"] < step]
        write_whole(self._steps_path, "".join(json.dumps(row) + "\n" for row in rows))
        self._remove_trained(step)
        last: Any = next((row for row in reversed(rows) if row["step"] == step - 1), None)
        left = [] if last is None else [GroupId(*pair) for pair in last["left"]]
        next_step = step if last is None else int(last["next_step"])
        unused_steps = {group_id.step for group_id in left}
        finished = {}
        for path in sorted(self._folder.glob("[0-9]*.jsonl")):
            planned_for = int(path.stem)
            if planned_for < step and planned_for not in unused_steps:
                continue
            for group_id, group in self._cut(path, planned_for, step).items():
                if group_id in left or planned_for >= next_step:
                    finished[group_id] = group
        return RestoredRollouts(left=left, next_step=next_step, finished=finished)

    def _remove_trained(self, first_step: int) -> None:
        """Remove what was written of training on a step and those after it."""
        for path in self._folder.glob("*-[0-9]*.jsonl"):
            name, _, step = path.stem.partition("-")
            if name in ("advantages", "trained") and step.isdecimal() and int(step) >= first_step:
                path.unlink()

    def _cut(self, path: Path, planned_for: int, step: int) -> dict[GroupId, TrajectoryGroup]:
        """The groups of a file that weights of at most `step` steps sampled; the rest is removed, torn or whole."""
        rows = self._rows(path)
        try:
            ids = [GroupId(planned_for, int(row["number"])) for row in rows]
            groups = [group_from_json(json.dumps(row["group"])) for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(path, error) from error
        kept = [found for found in zip(rows, ids, groups, strict=True) if found[2].version <= step]
        # Also if nothing but a torn line goes: the next group would be appended to that.
        write_whole(path, "".join(json.dumps(row) + "\n" for row, _, _ in kept))
        return {group_id: group for _, group_id, group in kept}

    def _rows(self, path: Path) -> list[dict[str, Any]]:
        try:
            return [dict(json.loads(line)) for line in whole_lines(path)]
        except (ValueError, TypeError) as error:
            raise _unreadable(path, error) from error

    @property
    def _steps_path(self) -> Path:
        return self._folder / "steps.jsonl"

    def _groups_path(self, step: int) -> Path:
        return self._folder / f"{step:06d}.jsonl"


def _short(tokens: Sequence[float]) -> float | list[float]:
    """Nine digits tell any float32 from every other."""
    values = [float(f"{value:.9g}") for value in tokens]
    return values[0] if len(set(values)) == 1 else values


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} does not hold rollouts ({error}); remove it to sample them again")
