"""Service that answers: started when somebody asks, shared by all answers, ended some minutes after the last."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from cookhouse.errors import ServiceError
from cookhouse.service.sampling.chat_model import ChatModel, SamplingOptions
from cookhouse.service.sampling.target import Target

Say: TypeAlias = Callable[[str], None]
IDLE_SECONDS: Final = 600.0
_MAX_OPEN: Final = 8


class Opener(Protocol):
    """The part of `cookhouse.service.sampling.sampling_service.SamplingService` that is used here."""

    def has(self, targets: Sequence[Target]) -> bool: ...

    async def chat_models(self, targets: Sequence[Target], draw: SamplingOptions) -> list[ChatModel]: ...


OpenService: TypeAlias = Callable[[Say], AbstractAsyncContextManager[Opener]]
"""Opens a service to sample from, which reports what a person should know to the function given."""


class SharedService:
    """One sampling service for all who ask. Where it must be started anew, since it lacks what is asked for or has
    failed, that waits until nobody is being answered.
    """

    def __init__(self, open_service: OpenService, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._open_service = open_service
        self._idle_seconds = idle_seconds
        self._stack = AsyncExitStack()
        self._opener: Opener | None = None
        self._models: dict[Target, ChatModel] = {}
        self._is_broken = False
        self._say: Say | None = None
        self._changing = asyncio.Lock()
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._num_answering = 0
        self._num_asking = 0
        self._ending: asyncio.TimerHandle | None = None
        self._end: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """True if it has been started and not ended."""
        return self._opener is not None

    @asynccontextmanager
    async def models(
        self, targets: Sequence[Target], draw: SamplingOptions, say: Say
    ) -> AsyncIterator[list[ChatModel]]:
        """Weights that answer within the block. `say` is given what goes on until they do.

        Raises:
            InputError: there are no such weights.
            ServiceError: no engine could be started.
        """
        self._num_asking += 1
        if self._ending is not None:
            self._ending.cancel()
        try:
            if self._changing.locked():
                say("waiting for the engine, which loads weights for another question")
            async with self._changing:
                try:
                    models = await self._opened(targets, draw, say)
                except ServiceError:
                    self.doubt()
                    raise
                self._num_answering += 1
                self._is_free.clear()
            try:
                yield models
            finally:
                self._num_answering -= 1
                if not self._num_answering:
                    self._is_free.set()
        finally:
            self._num_asking -= 1
            if not self._num_asking:
                self._ending = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_soon)

    def doubt(self) -> None:
        """Give who asks next another: this one has failed."""
        self._is_broken = True

    async def close(self) -> None:
        """End it, after what it is doing."""
        if self._ending is not None:
            self._ending.cancel()
        async with self._changing:
            await self._stop()

    async def _opened(self, targets: Sequence[Target], draw: SamplingOptions, say: Say) -> list[ChatModel]:
        if self._opener is not None and (self._is_broken or not self._opener.has(targets)):
            if self._num_answering:
                say("waiting until other answers are given: the engine is then started anew")
            await self._is_free.wait()
            self._models.clear()
        if self._is_broken:
            await self._stop()
        self._say = say
        try:
            if self._opener is None:
                say("starting what answers, which takes some seconds")
                self._opener = await self._stack.enter_async_context(self._open_service(self._tell))
            new = [target for target in dict.fromkeys(targets) if target not in self._models]
            if new:
                self._models |= zip(new, await self._opener.chat_models(new, draw), strict=True)
        finally:
            self._say = None
        others = [target for target in self._models if target not in targets]
        for target in others[: max(0, len(self._models) - _MAX_OPEN)]:
            del self._models[target]
        return [replace(self._models[target], draw=draw) for target in targets]

    def _tell(self, text: str) -> None:
        if self._say is not None:
            self._say(text)

    def _end_soon(self) -> None:
        self._end = asyncio.ensure_future(self._end_unused())

    async def _end_unused(self) -> None:
        async with self._changing:
            if not self._num_asking:
                await self._stop()

    async def _stop(self) -> None:
        self._opener = None
        self._models.clear()
        self._is_broken = False
        await self._stack.aclose()
