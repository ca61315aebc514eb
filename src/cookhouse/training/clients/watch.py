"""Notices that a training service is gone: the SDK alone would go on trying for hours."""

import asyncio
import contextlib
import time

import httpx
from tinker.lib.base_url import resolve_base_url

from cookhouse.errors import ServiceError
from cookhouse.telemetry import Telemetry, events
from cookhouse.training.interrupt import Interrupt

_EVERY_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
_PROBE_SECONDS = 5.0
_STOP_SECONDS = 5.0
"""What a run that has been asked to stop grants a service that does not answer."""


class Watch:
    """Asks a service for its health in addition to the run's own requests, which may take long for good reasons."""

    def __init__(
        self, base_url: str | None, *, patience_seconds: float, interrupt: Interrupt, telemetry: Telemetry
    ) -> None:
        self._url = resolve_base_url(base_url)
        self._patience_seconds = patience_seconds
        self._interrupt = interrupt
        self._telemetry = telemetry

    async def until_gone(self) -> None:
        """Wait until the service has given no answer for `patience_seconds`, or for some when the run is to stop.

        Raises:
            ServiceError: that is so now.
        """
        # From the end of the first look without an answer, and anew where this process stood still: the service may not
        # have.
        silent_since: float | None = None
        looked_at = time.monotonic()
        async with httpx.AsyncClient(timeout=_PROBE_SECONDS) as client:
            while True:
                problem = await self._problem(client)
                now = time.monotonic()
                stood_still = now - looked_at > _EVERY_SECONDS + 2 * _PROBE_SECONDS
                looked_at = now
                silent_since = None if problem is None else now if stood_still else silent_since or now
                if silent_since is not None:
                    self._judge(now - silent_since, problem)
                await self._pause()

    def _judge(self, silent_seconds: float, problem: str | None) -> None:
        if silent_seconds < self._allowed_seconds:
            self._report(silent_seconds)
            return
        raise ServiceError(
            f"the training service at {self._url} has not answered for {silent_seconds:.0f} s ({problem}); "
            "see that it runs and can be reached (service_patience_seconds is how long a run waits for it)"
        )

    @property
    def _allowed_seconds(self) -> float:
        is_stopping = self._interrupt.is_requested
        return min(_STOP_SECONDS, self._patience_seconds) if is_stopping else self._patience_seconds

    async def _problem(self, client: httpx.AsyncClient) -> str | None:
        """Why the service does not answer; None if it does, be it with a refusal."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                response = await client.get(f"{self._url}/api/v1/healthz")
        except TimeoutError:
            return "no answer in time"
        except httpx.HTTPError as error:
            return str(error) or type(error).__name__
        return f"status {response.status_code}" if response.status_code >= 500 else None

    def _report(self, silent_seconds: float) -> None:
        what = f"the training service at {self._url} to answer again; the run ends at {self._patience_seconds:.0f} s"
        self._telemetry.event(events.RUN_WAITING, metrics={"seconds": silent_seconds}, what=what)

    async def _pause(self) -> None:
        """Until the next look, which is at once when the run is asked to stop."""
        if self._interrupt.is_requested:
            await asyncio.sleep(_AGAIN_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(_EVERY_SECONDS, self._patience_seconds)):
                await self._interrupt.requested()
