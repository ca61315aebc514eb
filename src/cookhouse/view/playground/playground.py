"""The playground of a place: questions under way, and labels of their answers."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from cookhouse.errors import InputError
from cookhouse.service.connection import configured_service
from cookhouse.service.sampling.target import Target
from cookhouse.view.place import Place
from cookhouse.view.playground.answers import Event, ask
from cookhouse.view.playground.labels import LabeledPair, LabelFile
from cookhouse.view.playground.question import Question
from cookhouse.view.playground.shared_service import Opener, OpenService, Say, SharedService

LABELS_FILE: Final = "labels.jsonl"
_MAX_AT_ONCE: Final = 2
"""Questions that are answered at the same time, each by two weights."""
_MAX_WAITING: Final = 8


class Playground:
    """Answers questions, some at a time."""

    def __init__(self, place: Place, *, labels: Path | None = None, open_service: OpenService | None = None) -> None:
        """`labels`: the file that labels go to; default: one in the place. `open_service`: default: the service that
        the environment names, or a local engine.
        """
        self.place = place
        self.labels = LabelFile(labels or place.folder / LABELS_FILE)
        self.shared_service = SharedService(open_service or self._open_service)
        self._turns = asyncio.Semaphore(_MAX_AT_ONCE)
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def service(self) -> str | None:
        """The address of the service that answers; None: a local engine.

        Raises:
            InputError: the environment names one that cannot be.
        """
        configured = configured_service(os.environ)
        return None if configured is None else configured.base_url or "the hosted Tinker service"

    def check_room(self) -> None:
        """Raises `InputError` where too many wait for an answer."""
        if len(self._asking) >= _MAX_AT_ONCE + _MAX_WAITING:
            raise InputError(f"{len(self._asking)} questions are being answered or wait; ask again when some are done")

    async def events(self, question: Question, targets: Sequence[Target]) -> AsyncGenerator[Event]:
        """Events until a question is answered. Whoever stops listening stops the work."""
        told: asyncio.Queue[Event | None] = asyncio.Queue()
        # A task of its own: it is cancelled once, and can then end what it has begun.
        task = asyncio.create_task(self._answer(question, targets, told))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        task.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (event := await told.get()) is not None:
                yield event
        finally:
            task.cancel()

    async def close(self) -> None:
        """Stop all answers, and the engine if there is one."""
        tasks = [*self._asking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.shared_service.close()

    async def _answer(self, question: Question, targets: Sequence[Target], told: "asyncio.Queue[Event | None]") -> None:
        if self._turns.locked():
            told.put_nowait({"type": "note", "text": "waiting for other questions to be answered"})
        async with self._turns:
            answers = await ask(question, targets, self.shared_service, told.put_nowait)
        key = None
        if answers is not None and len(answers) == 2:
            key = self.labels.keep(LabeledPair(question=question, answers=(answers[0], answers[1])))
        told.put_nowait({"type": "done", "answers": key})

    def _open_service(self, say: Say) -> AbstractAsyncContextManager[Opener]:
        from cookhouse.service.sampling.sampling_service import SamplingService

        return SamplingService(say=say, place=self.place.folder)
