"""Samples of one answer while they are drawn.

engine thread ── tell ──► [event loop] queue ──► outputs ──► route ── close ──► engine cancels what is not over
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from cookhouse.engine.contract import SampleOutput
from cookhouse.errors import CookhouseError, ServiceError

_log = logging.getLogger(__name__)


class Sampling:
    """Requests to the engine that make up one answer. Lives on the event loop, but for `tell`."""

    def __init__(self, request_ids: Sequence[str], cancel: Callable[[Sequence[str]], None]) -> None:
        self._positions = {request_id: position for position, request_id in enumerate(request_ids)}
        self._left = set(request_ids)
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[SampleOutput] = asyncio.Queue()

    def tell(self, output: SampleOutput) -> None:
        """Hand over what the engine says; from its thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, output)

    async def outputs(self) -> AsyncIterator[tuple[int, SampleOutput]]:
        """What the engine says, in order, with the position of the request that it is of.

        Raises:
            CookhouseError: one of them failed.
        """
        while self._left:
            output = await self._queue.get()
            if output.error is not None:
                if not isinstance(output.error, CookhouseError):
                    _log.error("the engine failed", exc_info=output.error)
                raise output.error
            if not output.is_partial:
                self._left.discard(output.request_id)
            yield self._positions[output.request_id], output

    def dismiss(self) -> None:
        """Fail what is not over: the server is about to end."""
        self._queue.put_nowait(SampleOutput(request_id="", error=ServiceError("the server is stopping")))

    def close(self) -> None:
        """Have the engine drop what is not over."""
        if self._left:
            self._cancel(sorted(self._left))
            self._left.clear()
