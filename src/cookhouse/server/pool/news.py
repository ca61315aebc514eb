"""That something has changed, for who waits for it."""

import asyncio
from contextlib import suppress


class News:
    """Lives on the event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake all who wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Until it is told, or for so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
