"""A worker in a thread of this process."""

import asyncio
import threading
from collections.abc import Callable, Sequence

from cookhouse.engine.contract import Command, Event, Lost, WorkerOptions
from cookhouse.engine.engine import Engine
from cookhouse.engine.transports.outbox import Outbox
from cookhouse.engine.worker import Runner


class InThread:
    """Implements `Worker`. The thread starts at once; nothing of the engine is shared but the process."""

    def __init__(self, make_engine: Callable[[], Engine], options: WorkerOptions) -> None:
        """`make_engine` is called in the thread."""
        self._outbox = Outbox()
        self._runner = Runner(make_engine, options, self._tell)
        # A daemon: a pass may take minutes, and must not keep a process alive that was asked to end.
        self._thread = threading.Thread(target=self._runner.run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, commands: Sequence[Command]) -> None:
        """See `Worker`."""
        self._runner.submit(commands)

    async def events(self) -> Sequence[Event]:
        """See `Worker`."""
        return await self._outbox.take()

    async def close(self, seconds: float) -> bool:
        """See `Worker`."""
        self._runner.stop()
        await asyncio.to_thread(self._thread.join, seconds)
        self._outbox.close()
        return not self._thread.is_alive()

    def _tell(self, events: Sequence[Event]) -> None:
        self._outbox.put(events)
        if any(isinstance(event, Lost) for event in events):
            self._outbox.close()
