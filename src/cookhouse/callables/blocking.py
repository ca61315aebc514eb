"""Calls of a user's own async functions, timed: what computes or waits without awaiting holds up everything else that
shares the event loop, and is reported by name.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from cookhouse.callables.returned import function_place
from cookhouse.errors import InputError

logger = logging.getLogger(__name__)

_LEAST_SECONDS = 0.1
"""A shorter time on the loop holds nobody up."""
_REPORTED_TIMES = 3
_REPORTED_SECONDS = 1.0


@dataclass(kw_only=True)
class LoopWatch:
    """Times for which functions kept an event loop to themselves. Of nested calls each has its own time alone."""

    clock: Callable[[], float] = time.perf_counter
    _blocked: dict[str, list[float]] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)
    _inner_seconds: float = 0.0

    @contextmanager
    def span(self, function: Callable[..., Any]) -> Iterator[None]:
        """Time what the body does on the loop."""
        outer, self._inner_seconds = self._inner_seconds, 0.0
        start = self.clock()
        try:
            yield
        finally:
            seconds = self.clock() - start
            self._add(function, seconds - self._inner_seconds)
            self._inner_seconds = outer + seconds

    def _add(self, function: Callable[..., Any], seconds: float) -> None:
        if seconds < _LEAST_SECONDS:
            return
        place = function_place(function)
        spans = self._blocked.setdefault(place, [])
        spans.append(seconds)
        if place in self._reported or len(spans) < _REPORTED_TIMES or sum(spans) < _REPORTED_SECONDS:
            return
        self._reported.add(place)
        logger.warning(
            "%s has blocked the event loop %d times, for %.1f s, and all other rollouts waited meanwhile: it computes "
            "or waits without `await`; await what waits, and give the rest to a thread, as in "
            "`await asyncio.to_thread(function, ...)`",
            place,
            len(spans),
            sum(spans),
        )


_WATCHES: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch] = WeakKeyDictionary()


async def watched(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Result of an async function of a user's own; a warning is logged once if it blocks the loop.

    Raises:
        InputError: it is no async function.
    """
    answer, watch = _begun(function, *arguments, **named)
    if not isinstance(answer, Awaitable):
        raise InputError(f"{function_place(function)} returned what cannot be awaited; write it as `async def`")
    return await _Timed(answer, partial(watch.span, function))


async def watched_either(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The same of a function that may be async or not."""
    answer, watch = _begun(function, *arguments, **named)
    return await _Timed(answer, partial(watch.span, function)) if isinstance(answer, Awaitable) else answer


def _begun(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, LoopWatch]:
    watch = _WATCHES.setdefault(asyncio.get_running_loop(), LoopWatch())
    with watch.span(function):
        return function(*arguments, **named), watch


@dataclass(frozen=True)
class _Timed:
    """An awaitable whose every piece between two waits runs in a span."""

    awaitable: Awaitable[Any]
    span: Callable[[], Any]

    def __await__(self) -> Generator[Any, Any, Any]:
        pieces: Any = self.awaitable.__await__()
        go_on: Callable[[], Any] = partial(next, pieces)
        while True:
            try:
                with self.span():
                    waits_for = go_on()
            except StopIteration as end:
                return end.value
            try:
                yield waits_for
                go_on = partial(next, pieces)
            except GeneratorExit:
                pieces.close()
                raise
            except BaseException as error:  # a cancellation, which is the function's to see
                go_on = partial(pieces.throw, error)
