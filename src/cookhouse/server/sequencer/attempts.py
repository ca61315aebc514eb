"""Attempts at requests: each sends its command to a worker, and sends it again where a model has to come back.

Create, Load ──► a worker ── no memory, or the disk fails ──► room has changed, or some seconds ──► once more
"""

import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from cookhouse.engine.contract import Amount, Create, Load, ModelCommand, NoMemoryError, Output
from cookhouse.errors import InputError
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import DiskError, LostError
from cookhouse.server.sequencer.futures import Result
from cookhouse.server.sessions.sessions import Model

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


@dataclass(slots=True, kw_only=True)
class Attempt:
    """At one request, whose turn it is: from `send` on, the next request of the model has its own."""

    pool: Pool
    model: Model
    retries: Retries | None
    """Of a model that must come back; None: what cannot be made now fails."""
    is_current: Callable[[], bool]
    """Whether the worker at which the attempt is made has not been lost since."""
    on_sent: Callable[[ModelCommand], None]
    """Ends the turn; may send more before."""
    sent_at: float | None = None
    answered_at: float | None = None
    """When the worker was done with it; on the clock of `time.monotonic`."""
    spent: list[Amount] = field(default_factory=list)
    """What the worker used for it."""

    async def send(self, command: ModelCommand) -> Output:
        """Submit the command, and wait for its answer.

        Raises:
            InputError: the caller is to blame, or the model's session has ended.
            ServiceError: the engine failed, or was lost.
        """
        self._check()
        if self.retries is not None and isinstance(command, Create | Load):
            # The next one of the model has its turn once there is a model: it may take long.
            output = await self.retries.send(command, self._check, self.spent)
            self.sent_at = self.answered_at = time.monotonic()
            self.on_sent(command)
            return output
        self.sent_at = time.monotonic()
        answer = self.pool.send(command, spent=self.spent)
        self.on_sent(command)
        output = await answer
        self.answered_at = time.monotonic()
        return output

    def _check(self) -> None:
        """Raise why the attempt is over, if it is."""
        if self.model.is_dropped:
            raise InputError(f"session {self.model.session_id} has ended")
        if not self.is_current():
            raise LostError("the engine was lost")
        if self.model.loss is not None:
            raise LostError(self.model.loss)


Run = Callable[[Attempt], Awaitable[Result]]
"""Does what a request asks for, at each attempt. It may be run again, in another process, and does the same then."""
