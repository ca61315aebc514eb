"""Inspect AI within a program of ours: silent, one evaluation at a time, its samples counted as they end."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from weakref import WeakKeyDictionary

from inspect_ai.hooks import Hooks, SampleEnd, hooks
from inspect_ai.model import get_model
from inspect_ai.util import display_type

_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_ON_SAMPLE: ContextVar[Callable[[], None] | None] = ContextVar("on_sample", default=None)


@asynccontextmanager
async def inspect_turn(on_sample: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Wait until nobody else evaluates: Inspect AI takes one call at a time. `on_sample` hears of each sample that
    ends, those that an earlier log had among them.
    """
    async with _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        await asyncio.to_thread(_prepare)
        # Within a sample Inspect AI puts its name before every line that is logged.
        token = _ON_SAMPLE.set(None if on_sample is None else partial(copy_context().run, on_sample))
        try:
            yield
        finally:
            _ON_SAMPLE.reset(token)


@cache
def _prepare() -> None:
    """Inspect AI reads how it shows itself from the environment, once; a user who has set it there sees it."""
    given = os.environ.get("INSPECT_DISPLAY")
    os.environ.setdefault("INSPECT_DISPLAY", "none")
    display_type()
    if given is None:
        del os.environ["INSPECT_DISPLAY"]
    get_model("none")  # it announces the hooks that it knows by now on the terminal, and ours is none for that
    hooks(name="cookhouse_progress", description="Tells cookhouse of each sample that ends.")(_Counting)


class _Counting(Hooks):
    def enabled(self) -> bool:
        return _ON_SAMPLE.get() is not None

    async def on_sample_end(self, data: SampleEnd) -> None:
        del data
        if (on_sample := _ON_SAMPLE.get()) is not None:
            on_sample()
