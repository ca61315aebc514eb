"""checkpoints.jsonl: what was saved, where, and at which place of the run."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.training.files import append_line, whole_lines, write_whole
from cookhouse.training.work import Cursor


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

    @property
    def cursor(self) -> Cursor:
        return Cursor(epoch=self.epoch, batch=self.batch, step=self.step)


class CheckpointFile:
    """Appends checkpoints as lines that are on disk once `append` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, checkpoint: Checkpoint) -> None:
        """Add a line.

        Raises:
            InputError: the disk is full or may not be written.
        """
        append_line(self._path, json.dumps(asdict(checkpoint)))

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
        lines = [json.dumps(asdict(point)) + "\n" for point in kept if point.state_path or point.sampler_path]
        write_whole(self._path, "".join(lines))

    def read(self) -> list[Checkpoint]:
        """All checkpoints, oldest first; a torn last line is left out, unknown keys are ignored.

        Raises:
            InputError: some other line is not a checkpoint.
        """
        return [self._parse(number, line) for number, line in enumerate(whole_lines(self._path), start=1)]

    def last_state(self) -> Checkpoint | None:
        """The newest checkpoint that training can continue from."""
        return next((checkpoint for checkpoint in reversed(self.read()) if checkpoint.state_path), None)

    def _parse(self, number: int, line: str) -> Checkpoint:
        try:
            row = json.loads(line)
            return Checkpoint(**{name: row[name] for name in Checkpoint.__dataclass_fields__ if name in row})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self._path}, line {number}, is not a checkpoint ({error}); remove it, or choose another log_path"
            ) from error
