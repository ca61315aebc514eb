"""Saves of what is being trained: requested at one step, and finished while later ones are under way."""

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum

import tinker

from cookhouse.training.checkpoints import Checkpoint
from cookhouse.training.clients.client import TrainingClient
from cookhouse.training.work import Cursor


class CheckpointKind(StrEnum):
    """What to save: weights with optimizer state, weights to sample from, or one of each."""

    STATE = "state"
    SAMPLER = "sampler"
    BOTH = "both"


@dataclass(frozen=True, kw_only=True)
class PendingCheckpoint:
    """A save that has been requested: it holds the weights as of the request, whatever is trained meanwhile."""

    name: str
    cursor: Cursor
    is_final: bool
    is_rolling: bool
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
            rolling=self.is_rolling,
            state_path=state_path,
            sampler_path=sampler_path,
        )


def submit_checkpoint(
    client: TrainingClient,
    cursor: Cursor,
    *,
    kind: CheckpointKind,
    is_final: bool = False,
    is_rolling: bool = False,
    ttl_seconds: int | None = None,
) -> PendingCheckpoint:
    """Request a save of the weights after the work submitted so far, without waiting. Named by the step, or `final`.

    A rolling one has a name of its own: another save of the step may take its place, and has to outlive it.
    """
    name = "final" if is_final else f"{cursor.step:06d}" + ("-rolling" if is_rolling else "")
    wants_state = kind is not CheckpointKind.SAMPLER
    wants_sampler = kind is not CheckpointKind.STATE
    return PendingCheckpoint(
        name=name,
        cursor=cursor,
        is_final=is_final,
        is_rolling=is_rolling,
        state=client.save_state(name, ttl_seconds=ttl_seconds) if wants_state else None,
        sampler=client.save_weights_for_sampler(name, ttl_seconds=ttl_seconds) if wants_sampler else None,
    )
