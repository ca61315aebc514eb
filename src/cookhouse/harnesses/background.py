"""Weights that are open on a thread of their own, for a harness whose event loops come and go, or that has none."""

import asyncio
import atexit
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from cookhouse.service.sampling.chat_model import ChatModel, SamplingOptions
from cookhouse.service.sampling.sampling_service import SamplingService
from cookhouse.service.sampling.target import find_target

_T = TypeVar("_T")
_NO_DRAW = SamplingOptions(max_tokens=1, temperature=0.0, top_p=1.0, seed=0)
"""Each request says its own."""


class BackgroundWeights:
    """Opened when they are first asked for, and closed by `close` or when the program ends: a local engine is
    started once and stopped.
    """

    def __init__(self, name: str, *, registry: str | None = None, renderer: str | None = None) -> None:
        """`name` is one that weights have everywhere, or a base model. Raises `InputError` where there are none."""
        self._target = find_target(name, renderer=renderer, registry=registry)
        self._lock = threading.Lock()
        self._opened: Future[ChatModel] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="cookhouse-weights", daemon=True)
        self._is_over = asyncio.Event()

    def open(self) -> "Future[ChatModel]":
        """The weights, once a service has loaded them.

        The future raises `InputError` or `ServiceError` if that fails, as `SamplingService.chat_model`.
        """
        with self._lock:
            if self._opened is None:
                self._opened = Future()
                self._thread.start()
                atexit.register(self.close)
            return self._opened

    def submit(self, work: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Run a coroutine on the thread's event loop; after `open`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Stop what was started, and wait for it. Nothing can be asked any more."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._hold())
        finally:
            self._loop.close()

    async def _hold(self) -> None:
        assert self._opened is not None
        try:
            async with SamplingService(say=_say) as service:
                self._opened.set_result(await service.chat_model(self._target, _NO_DRAW))
                await self._is_over.wait()
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
