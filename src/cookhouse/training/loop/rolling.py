"""Rolling checkpoints: frequent saves to continue from, of which only the newest is kept.

A later save of the run, of whatever kind, takes the place of a rolling one: first it is recorded, then the rolling one
is struck from the record, and last the service deletes it. Wherever a run breaks off, what is recorded is there.
A rolling checkpoint that an earlier launch of the run left, from which this one went on, is not this one's to delete.
"""

import asyncio
import logging

from cookhouse.settings import StepSettings
from cookhouse.training.clients.client import ServiceClient, TrainingClient
from cookhouse.training.clients.session import service_errors
from cookhouse.training.loop.cadence import Cadence
from cookhouse.training.loop.saving import CheckpointKind, PendingCheckpoint, submit_checkpoint
from cookhouse.weights.checkpoints import Checkpoint, CheckpointFile, Cursor

logger = logging.getLogger(__name__)


class RollingSaves:
    """Rolling checkpoints: their times, and their deletion."""

    def __init__(self, settings: StepSettings, service: ServiceClient, checkpoints: CheckpointFile) -> None:
        self._cadence = Cadence(every=settings.rolling_save_every)
        self._ttl_seconds = settings.rolling_ttl_seconds
        self._service = service
        self._checkpoints = checkpoints
        self._newest: Checkpoint | None = None
        self._deletions: set[asyncio.Task[None]] = set()

    def is_due(self, step: int) -> bool:
        """True if one is due after so many steps, where no other save is."""
        return self._cadence.is_due(step)

    def submit(self, client: TrainingClient, cursor: Cursor) -> PendingCheckpoint:
        """Request one, without waiting."""
        return submit_checkpoint(
            client, cursor, kind=CheckpointKind.STATE, is_rolling=True, ttl_seconds=self._ttl_seconds
        )

    def recorded(self, checkpoint: Checkpoint) -> None:
        """Let the rolling checkpoint go whose place a recorded one takes. The service is not waited for."""
        replaced, self._newest = self._newest, checkpoint if checkpoint.rolling else None
        if replaced is not None:
            deletion = asyncio.create_task(drop_checkpoint(replaced, self._service, self._checkpoints))
            self._deletions.add(deletion)
            deletion.add_done_callback(self._deletions.discard)

    async def aclose(self, *, is_broken: bool) -> None:
        """Wait for what is being deleted; where the run broke, leave it to the service and its time to live."""
        deletions = list(self._deletions)
        if is_broken:
            for deletion in deletions:
                deletion.cancel()
        await asyncio.gather(*deletions, return_exceptions=True)


async def drop_checkpoint(checkpoint: Checkpoint, service: ServiceClient, checkpoints: CheckpointFile) -> None:
    """Strike a checkpoint whose place another took from the record and delete it. Left, with a warning, where it cannot
    be deleted.
    """
    assert checkpoint.rolling or checkpoint.best
    doing = f"deleting the checkpoint {checkpoint.name}"
    paths = [path for path in (checkpoint.state_path, checkpoint.sampler_path) if path is not None]
    try:
        with service_errors(doing):
            for path in paths:
                checkpoints.forget(path)
            for path in paths:
                await service.delete_checkpoint(path)
    except Exception as error:  # whatever a client raises: no run ends because it keeps too much
        is_kept = "until its time to live is over" if checkpoint.rolling else "until somebody deletes it"
        logger.warning("%s failed (%s); the service keeps it %s", doing, error, is_kept)
