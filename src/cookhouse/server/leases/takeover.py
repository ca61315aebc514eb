"""Sessions that this server has claimed, and brings back one by one: each is answered for as soon as it is there.

come ──► coming: its requests wait ── take_over ──► answered here
                                   └─ fails ──► once more, later and later
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from cookhouse.server.refusals import StorageBusyError

_log = logging.getLogger(__name__)
_AT_ONCE = 4
"""Each waits for the database most of the time."""
_RETRY_SECONDS = 0.5
_FAILED_SECONDS = 10.0
"""After which it is tried again to bring a session back that could not be; each further pause is twice as long."""
_MOST_FAILED_SECONDS = 300.0

TakeOver = Callable[[str], Awaitable[None]]
"""Brings a session back from the journal, if it has not ended; where it raises, nothing of it is there."""


class Takeover:
    """Lives on the event loop."""

    def __init__(
        self,
        take_over: TakeOver,
        *,
        on_back: Callable[[str], None],
        on_tried: Callable[[], None],
        is_over: Callable[[], bool],
    ) -> None:
        """`on_back` is called with each session that comes no more, `on_tried` when all have been tried that have come.
        `is_over`: whether this server holds sessions no more.
        """
        self._take_over = take_over
        self._on_back = on_back
        self._on_tried = on_tried
        self._is_over = is_over
        self._coming: set[str] = set()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._num_untried = 0
        self._is_failing = False
        self._tasks: set[asyncio.Task[None]] = set()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._coming

    def come(self, session_ids: Iterable[str]) -> None:
        """Bring sessions back."""
        new = [session_id for session_id in session_ids if session_id not in self._coming]
        self._coming.update(new)
        self._num_untried += len(new)
        for session_id in new:
            task = asyncio.create_task(self._bring_back(session_id), name=f"taking over {session_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self) -> Sequence[asyncio.Task[None]]:
        """Try no more; the tasks to wait for."""
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    async def _bring_back(self, session_id: str) -> None:
        try:
            if not await self._is_back(session_id):
                await self._try_again(session_id)
        finally:
            self._coming.discard(session_id)
            self._on_back(session_id)

    async def _is_back(self, session_id: str) -> bool:
        """Try once; waits for a database that is away."""
        try:
            while not self._is_over():
                async with self._turns:
                    try:
                        await self._take_over(session_id)
                    except StorageBusyError as error:
                        self._note_failing(error)
                    else:
                        self._is_failing = False
                        return True
                await asyncio.sleep(_RETRY_SECONDS)
        except Exception:
            _log.exception("session %s cannot be taken over, which is tried again", session_id)
            return False
        finally:
            self._num_untried -= 1
            if not self._num_untried:
                self._on_tried()
        return True

    async def _try_again(self, session_id: str) -> None:
        """Until it is back; its traceback has been logged."""
        pause = _FAILED_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MOST_FAILED_SECONDS)
            if self._is_over():
                return
            try:
                async with self._turns:
                    await self._take_over(session_id)
            except Exception as error:
                text = "session %s still cannot be taken over, which is tried again in %.0f s: %s: %s"
                _log.warning(text, session_id, pause, type(error).__name__, error)
            else:
                self._on_tried()
                return

    def _note_failing(self, error: StorageBusyError) -> None:
        if not self._is_failing:
            _log.warning("sessions that were taken over cannot be read, which is tried again: %s", error)
        self._is_failing = True
