"""Sessions that are brought back, and what a person is told once their requests have run again."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from cookhouse.server.leases.takeover import Takeover
from cookhouse.server.recovery.restored import Restored
from cookhouse.server.recovery.restoring import Restoring
from cookhouse.server.refusals import StorageBusyError


class Replays:
    """Lives on the event loop."""

    def __init__(self, restoring: Restoring, say: Callable[[str], None]) -> None:
        self._restoring = restoring
        self._say = say
        self._at_start: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken: Restored | None = None
        """Of sessions that were taken over, what has not been told of."""
        self._owners_aside: dict[str, str] = {}
        """Of sessions that an earlier process left, and that cannot be brought back for now."""
        self._taking = Takeover(
            self.take_over,
            on_back=self._come_back,
            on_tried=self.tell_of_taken,
            is_over=lambda: False,
        )

    def _come_back(self, session_id: str) -> None:
        del self._owners_aside[session_id]

    def check_aside(self, session_id: str) -> None:
        """Raises StorageBusyError: a session is set aside, until it can be brought back."""
        if session_id in self._owners_aside:
            raise StorageBusyError(
                f"session {session_id} cannot be brought back now, which is tried again; the server's log says why"
            )

    def check_owner(self, owner: str) -> None:
        """The same of any session of a tenant's."""
        for session_id, other in list(self._owners_aside.items()):
            if other == owner:
                self.check_aside(session_id)

    @property
    def is_starting(self) -> bool:
        """Whether what an earlier process left still runs again."""
        return self._at_start is not None and not self._at_start.done()

    async def restore(self) -> None:
        """Bring back what an earlier process left. Sessions that cannot be are set aside, and tried again later.

        Raises:
            StorageError: the journal cannot be read.
        """
        restored = await self._restoring.restore(self._owners_aside.__setitem__)
        self._taking.come(self._owners_aside)
        if restored.num_sessions:
            self._at_start = self._begin(restored, "replay")

    async def take_over(self, session_id: str) -> None:
        """Bring back a session of another server; see `Restoring.take_over` for what is raised."""
        began_at = time.monotonic()
        restored = await self._restoring.take_over(session_id)
        if self._taken is None:
            self._taken = replace(restored, began_at=began_at)
        else:
            self._taken.add(restored)

    def tell_of_taken(self) -> None:
        """Tell of the sessions that were taken over since it was last called, all at once."""
        taken, self._taken = self._taken, None
        if taken is not None and taken.num_sessions:
            self._begin(taken, "replay of sessions taken over")

    def cancel(self) -> Sequence[asyncio.Task[None]]:
        """Tell of nothing more; the tasks to wait for."""
        for task in self._tasks:
            task.cancel()
        return [*self._tasks, *self._taking.cancel()]

    def _begin(self, restored: Restored, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._tell(restored), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tell(self, restored: Restored) -> None:
        self._say(await restored.done())
