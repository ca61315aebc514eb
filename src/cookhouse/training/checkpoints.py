"""checkpoints.jsonl: what was saved, where, and at which place of the run."""

import json
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import tinker

from cookhouse.errors import InputError
from cookhouse.training.client import TrainingClient
from cookhouse.training.files import append_line, whole_lines
from cookhouse.training.work import Cursor


class CheckpointKind(StrEnum):
    """What to save: weights with optimizer state, weights to sample from, or one of each."""

    STATE = "state"
    SAMPLER = "sampler"
    BOTH = "both"


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
            return Checkpoint(**{name: row[name] for name in Checkpoint.__dataclass_fields__})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self._path}, line {number}, is not a checkpoint ({error}); remove it, or choose another log_path"
            ) from error


@dataclass(frozen=True, kw_only=True)
class PendingCheckpoint:
    """A save that has been requested: it holds the weights as of the request, whatever is trained meanwhile."""

    name: str
    cursor: Cursor
    is_final: bool
    state: Awaitable[tinker.types.SaveWeightsResponse] | None
    sampler: Awaitable[tinker.types.SaveWeightsForSamplerResponse] | None

    async def finish(self) -> Checkpoint:
        """Wait until the service has it."""
        state_path = None if self.state is None else (await self.state).path
        sampler_path = None if self.sampler is None else (await self.sampler).path
        return Checkpoint(
            name=self.name,
            epoch=self.cursor.epoch,
            batch=self.cursor.batch,
            step=self.cursor.step,
            final=self.is_final,
            state_path=state_path,
            sampler_path=sampler_path,
        )


def submit_checkpoint(
    client: TrainingClient,
    cursor: Cursor,
    *,
    kind: CheckpointKind,
    is_final: bool = False,
    ttl_seconds: int | None = None,
) -> PendingCheckpoint:
    """Request a save of the weights after the work submitted so far, without waiting. Named by the step, or `final`."""
    name = "final" if is_final else f"{cursor.step:06d}"
    wants_state = kind is not CheckpointKind.SAMPLER
    wants_sampler = kind is not CheckpointKind.STATE
    return PendingCheckpoint(
        name=name,
        cursor=cursor,
        is_final=is_final,
        state=client.save_state(name, ttl_seconds=ttl_seconds) if wants_state else None,
        sampler=client.save_weights_for_sampler(name, ttl_seconds=ttl_seconds) if wants_sampler else None,
    )
