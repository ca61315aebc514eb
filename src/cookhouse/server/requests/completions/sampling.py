"""Samples of one answer while they are drawn.

engine ── emit ──► queue ──► outputs ──► route ── close ──► engine cancels what is not over
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from cookhouse.engine.contract import SampleOutput
from cookhouse.errors import ServiceError


class Sampling:
    """Requests to the engine that make up one answer. Lives on the event loop."""

    def __init__(self, request_ids: Sequence[str], cancel: Callable[[Sequence[str]], None]) -> None:
        self._positions = {request_id: position for position, request_id in enumerate(request_ids)}
        self._left = set(request_ids)
        self._cancel = cancel
        self._queue: asyncio.Queue[SampleOutput | Exception] = asyncio.Queue()

    def emit(self, output: SampleOutput | Exception) -> None:
        """Hand over what the engine says of a request, or why it says no more."""
        self._queue.put_nowait(output)

    async def outputs(self) -> AsyncIterator[tuple[int, SampleOutput]]:
        """Outputs of the engine, in order, each with the position of its request.

        Raises:
            CookhouseError: one of them failed.
        """
        while self._left:
            output = await self._queue.get()
            if isinstance(output, Exception):
                raise output
            if not output.is_partial:
                self._left.discard(output.request_id)
            yield self._positions[output.request_id], output

    def dismiss(self) -> None:
        """Fail what is not over: the server is about to end."""
        self._queue.put_nowait(ServiceError("the server is stopping"))

    def close(self) -> None:
        """Have the engine drop what is not over."""
        if self._left:
            self._cancel(sorted(self._left))
            self._left.clear()
