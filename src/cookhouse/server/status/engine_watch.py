"""What the present worker says of itself, asked for when somebody looks, once a second at most."""

import asyncio
import time
import uuid

from cookhouse.engine.contract import Account, Inspect, Output, WorkerStatus
from cookhouse.server.sequencer.calls import Calls
from cookhouse.server.workers.member import Member

_AGAIN_SECONDS = 0.9
_PATIENCE_SECONDS = 0.2
_NOBODY = Account("", "")


class EngineWatch:
    """Lives on the event loop."""

    def __init__(self, calls: Calls, member: Member) -> None:
        self._calls = calls
        self._member = member
        self._asking: asyncio.Future[Output] | None = None
        self._asked_at = 0.0
        self._status: WorkerStatus | None = None
        self._told_at = 0.0
        self._num_losses = 0
        """Workers that had been lost when this one was asked."""

    async def status(self) -> WorkerStatus | None:
        """The newest; None: there is no worker, or it has not answered yet."""
        if self._num_losses != self._member.life.num_losses:
            self._status, self._num_losses = None, self._member.life.num_losses
        if self._asking is None and self._member.is_up and time.monotonic() - self._asked_at >= _AGAIN_SECONDS:
            self._asked_at = time.monotonic()
            self._asking = self._calls.ask(self._member, Inspect(command_id=uuid.uuid4().hex, account=_NOBODY))
            self._asking.add_done_callback(self._take)
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=_PATIENCE_SECONDS)
        return self._status

    @property
    def silent_seconds(self) -> float | None:
        """How long the worker has owed an answer; None: it owes none."""
        return None if self._asking is None else time.monotonic() - self._asked_at

    @property
    def age_seconds(self) -> float | None:
        """Of the newest status."""
        return None if self._status is None else time.monotonic() - self._told_at

    def _take(self, answer: "asyncio.Future[Output]") -> None:
        self._asking = None
        if answer.cancelled() or answer.exception() is not None:  # it was lost, which `Calls` tells
            return
        output = answer.result()
        assert isinstance(output, WorkerStatus)
        self._status, self._told_at = output, time.monotonic()
