"""checkpoints.jsonl: what was saved, where, and at which place of the run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError
from cookhouse.files import append_line, whole_lines, write_whole

CHECKPOINTS_FILE = "checkpoints.jsonl"


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A place in a run: the next step. With the run's config it decides everything that follows."""

    epoch: int = 0
    batch: int = 0
    """Batch within the epoch."""
    step: int = 0
    """Steps before this one, over all epochs. A step is one batch: one optimizer step, or, where a batch of rollouts is
    split into substeps or used several times, all of those."""
    loop_state: Mapping[str, Any] = field(default_factory=dict)
    """State of the source at this place, in JSON's types."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A line of checkpoints.jsonl. `epoch`, `batch` and `step` are the cursor: the next work not yet submitted."""

    name: str
    epoch: int
    batch: int
    step: int
    final: bool
    state_path: str | None
    sampler_path: str | None
    rolling: bool = False
    """Whether a later one takes its place."""
    best: Mapping[str, float] = field(default_factory=dict)
    """The metric by which these are the best weights of the run, with its value; empty: they are not."""
    loop_state: Mapping[str, Any] = field(default_factory=dict)
    """State of a source, or of a loop of one's own, in JSON's types."""

    @property
    def line(self) -> str:
        """Itself as JSON."""
        left_out = {name for name in ("best", "loop_state") if not getattr(self, name)}
        return json.dumps({name: value for name, value in asdict(self).items() if name not in left_out})

    @property
    def cursor(self) -> Cursor:
        return Cursor(epoch=self.epoch, batch=self.batch, step=self.step, loop_state=self.loop_state)


class CheckpointFile:
    """Appends checkpoints as lines that are on disk once `append` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, checkpoint: Checkpoint) -> None:
        """Add a line.

        Raises:
            InputError: the disk is full or may not be written.
        """
        append_line(self._path, checkpoint.line)

    def forget(self, path: str) -> None:
        """Name a `tinker://` path no more, since there is nothing at it; a checkpoint without any goes.

        Raises:
            InputError: the disk is full or may not be written.
        """
        kept = [
            replace(
                point,
                state_path=None if point.state_path == path else point.state_path,
                sampler_path=None if point.sampler_path == path else point.sampler_path,
            )
            for point in self.read()
        ]
        lines = [point.line + "\n" for point in kept if point.state_path or point.sampler_path]
        write_whole(self._path, "".join(lines))

    def mark_best(self, name: str, best: Mapping[str, float]) -> Checkpoint:
        """Record that the last checkpoint has the best weights, by a metric and its value.

        Raises:
            InputError: the disk is full or may not be written.
        """
        *before, last = self.read()
        assert last.name == name
        marked = replace(last, best=best)
        write_whole(self._path, "".join(point.line + "\n" for point in (*before, marked)))
        return marked

    def read(self) -> list[Checkpoint]:
        """All checkpoints, oldest first; a torn last line is left out, unknown keys are ignored.

        Raises:
            InputError: some other line is not a checkpoint.
        """
        try:
            lines = whole_lines(self._path)
        except UnicodeDecodeError as error:
            raise InputError(f"{self._path} is no text ({error}); remove it, or choose another log_path") from error
        return [self._parse(number, line) for number, line in enumerate(lines, start=1)]

    def last_state(self) -> Checkpoint | None:
        """The newest checkpoint that training can continue from."""
        return next((checkpoint for checkpoint in reversed(self.read()) if checkpoint.state_path), None)

    def best(self) -> list[Checkpoint]:
        """Checkpoints that were recorded as the best, the newest last; one, unless a run broke off between two."""
        return [checkpoint for checkpoint in self.read() if checkpoint.best]

    def _parse(self, number: int, line: str) -> Checkpoint:
        try:
            row = json.loads(line)
            point = Checkpoint(**{name: row[name] for name in Checkpoint.__dataclass_fields__ if name in row})
            _check_types(point)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{self._path}, line {number}, is not a checkpoint ({error}); remove it, or choose another log_path"
            ) from error
        return point


def _check_types(point: Checkpoint) -> None:
    """Raise `TypeError` for what no run writes."""
    numbers, paths = (point.epoch, point.batch, point.step), (point.state_path, point.sampler_path)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise TypeError("epoch, batch and step must be whole numbers from 0 on")
    if not isinstance(point.name, str) or not all(isinstance(path, str | None) for path in paths):
        raise TypeError("name and paths must be texts")
    if not isinstance(point.best, dict) or not all(isinstance(value, int | float) for value in point.best.values()):
        raise TypeError("best must be numbers by metric")


def named_by_run(saved: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
    """A run's checkpoints, in the order in which its name means them: the best, if kept, then the newest first."""
    newest_first = list(reversed(saved))
    return sorted(newest_first, key=lambda checkpoint: not checkpoint.best)


@checked
def get_last_checkpoint(
    log_path: str | Path, required_key: Literal["state_path", "sampler_path"] = "state_path"
) -> Checkpoint | None:
    """The newest checkpoint in the folder of a run, or of a loop of one's own, that has such a path; None: there is
    none.

    Raises:
        InputError: a line of checkpoints.jsonl is no checkpoint.
    """
    if required_key not in ("state_path", "sampler_path"):
        raise InputError(f"required_key is {required_key!r}; it must be state_path or sampler_path")
    saved = CheckpointFile(Path(log_path).expanduser() / CHECKPOINTS_FILE).read()
    return next((checkpoint for checkpoint in reversed(saved) if getattr(checkpoint, required_key)), None)
