"""Retries of commands that make a model which has to come back.

Create, Load ──► a worker ── no memory, or the disk fails ──► room has changed, or some seconds ──► once more
"""

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from cookhouse.engine.contract import Amount, Create, Load, NoMemoryError, Output
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import DiskError

_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 5.0
"""Memory that others on the machine free is reported by nobody."""
_LONGEST_SECONDS = 60.0
"""A disk that fails is asked less and less often: each time fills the log."""


class Retries:
    """Of models that come back, and wait for memory or for a disk: what they are made of is kept, so that nothing is
    lost. Lives on the event loop.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reasons: dict[str, str] = {}
        """Why models wait, by id."""

    def reason(self, model_id: str) -> str | None:
        """Reason why a model waits, with figures; None: it does not."""
        return self._reasons.get(model_id)

    async def send(self, command: Create | Load, check: Callable[[], None], spent: list[Amount]) -> Output:
        """Have some worker make a model, however long it takes until one can. `check` raises why it need not be made
        any more.

        Raises:
            CookhouseError: it cannot be made at all.
        """
        began_at, pause_seconds = time.monotonic(), _AGAIN_SECONDS
        try:
            while True:
                try:
                    output = await self._pool.send(command, spent=spent)
                except (NoMemoryError, DiskError) as error:
                    check()
                    self._note(command.model_id, str(error))
                    if isinstance(error, DiskError):
                        pause_seconds = min(2 * pause_seconds, _LONGEST_SECONDS)
                else:
                    if command.model_id in self._reasons:
                        seconds = time.monotonic() - began_at
                        _log.warning("%s is loaded, after it waited for %.1f s", command.model_id, seconds)
                    return output
                await self._pool.wait_for_room(pause_seconds)
                check()
                command = replace(command, command_id=uuid.uuid4().hex)
        finally:
            self._reasons.pop(command.model_id, None)

    def _note(self, model_id: str, reason: str) -> None:
        if model_id not in self._reasons:
            _log.warning("%s waits to be loaded, and nothing of it is lost: %s", model_id, reason)
        self._reasons[model_id] = reason
