"""Status of each worker as it reports it, asked when somebody looks, once a second at most."""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from cookhouse.engine.contract import Account, Inspect, Output, WorkerStatus
from cookhouse.server.pool.pool import Pool
from cookhouse.server.pool.worker_handle import WorkerHandle

_AGAIN_SECONDS = 0.9
_PATIENCE_SECONDS = 0.2
_OLD_SECONDS = 120.0
"""An answer that is older says nothing of what a worker does now."""
_NOBODY = Account("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A worker, and the newest that it said."""

    worker: WorkerHandle
    status: WorkerStatus | None
    """None: it is not up, or has not answered yet."""
    age_seconds: float | None
    """Of the status."""
    silent_seconds: float | None
    """How long it has owed an answer; None: it owes none."""
    utilization: float | None
    """The share of time that its turns took, between answers of the last two minutes; None: there are not two."""


@dataclass(frozen=True, slots=True)
class _Look:
    status: WorkerStatus
    at: float

    @property
    def busy_seconds(self) -> float:
        """Seconds that turns have taken, the present one included."""
        return self.status.turn_seconds + sum(turn.seconds for turn in self.status.turns)


class WorkerWatch:
    """Of one worker. Lives on the event loop."""

    def __init__(self, worker: WorkerHandle) -> None:
        self._worker = worker
        self._asking: asyncio.Future[Output] | None = None
        self._asked_at = 0.0
        self._looks: deque[_Look] = deque(maxlen=3)
        self._num_losses = 0
        """Of it, when it was asked."""

    async def look(self) -> Seen:
        """Ask it, unless it has just been asked, and wait a little for the answer."""
        if self._num_losses != self._worker.life.num_losses:
            self._num_losses = self._worker.life.num_losses
            self._looks.clear()
        if self._asking is None and self._worker.is_up and time.monotonic() - self._asked_at >= _AGAIN_SECONDS:
            self._asked_at = time.monotonic()
            self._asking = self._worker.ask(Inspect(command_id=uuid.uuid4().hex, account=_NOBODY))
            self._asking.add_done_callback(self._take)
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=_PATIENCE_SECONDS)
        now = time.monotonic()
        last = self._looks[-1] if self._looks else None
        return Seen(
            worker=self._worker,
            status=None if last is None else last.status,
            age_seconds=None if last is None else now - last.at,
            silent_seconds=None if self._asking is None else now - self._asked_at,
            utilization=self._utilization(now),
        )

    def _utilization(self, now: float) -> float | None:
        recent = [look for look in self._looks if now - look.at < _OLD_SECONDS]
        if len(recent) < 2 or recent[-1].at <= recent[0].at:
            return None
        busy_seconds = recent[-1].busy_seconds - recent[0].busy_seconds
        # An answer that took long to come makes the time too short, or too long.
        return min(1.0, max(0.0, busy_seconds / (recent[-1].at - recent[0].at)))

    def _take(self, answer: "asyncio.Future[Output]") -> None:
        self._asking = None
        if answer.cancelled() or answer.exception() is not None:  # it was lost, which the log has
            return
        output = answer.result()
        assert isinstance(output, WorkerStatus)
        self._looks.append(_Look(output, time.monotonic()))


class WorkerWatches:
    """Of all that there are at the moment."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._watches: dict[WorkerHandle, WorkerWatch] = {}

    async def look(self) -> Sequence[Seen]:
        """In the order of the server's workers."""
        workers = self._pool.workers
        self._watches = {one: self._watches.get(one) or WorkerWatch(one) for one in workers}
        return await asyncio.gather(*(watch.look() for watch in self._watches.values()))
