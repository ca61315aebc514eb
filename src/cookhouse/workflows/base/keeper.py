"""Keeper of a run's steps for people to read, writing in a thread of its own: training waits for none of it."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from cookhouse.errors import InputError
from cookhouse.training import Answered, Keep

logger = logging.getLogger(__name__)

_MAX_WAITING = 16
"""Steps. Where the disk is further behind, steps go without."""


class Keeper:
    """Has each step kept by every one of `keeps`, in the order of the steps; fits `cookhouse.training.Keep`. What goes
    wrong there is said once, and ends the keeping, not the run.
    """

    def __init__(self, keeps: Sequence[Keep]) -> None:
        self._keeps = keeps
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keep examples")
        self._waiting: list[Future[None]] = []
        self._num_left_out = 0
        self._is_broken = False

    def __call__(self, step: int, parts: Answered[Any]) -> None:
        self._waiting = [each for each in self._waiting if not each.done()]
        if len(self._waiting) == _MAX_WAITING:
            self._num_left_out += 1
            return
        self._waiting.append(self._thread.submit(copy_context().run, self._keep, step, list(parts)))

    async def aclose(self) -> None:
        """Wait until everything is written."""
        await asyncio.to_thread(self._thread.shutdown)
        if self._num_left_out:
            logger.warning("%d steps have no examples: they could not be written as fast", self._num_left_out)

    def _keep(self, step: int, parts: Answered[Any]) -> None:
        if self._is_broken:
            return
        try:
            for keep in self._keeps:
                keep(step, parts)
        except Exception as error:
            self._is_broken = True
            logger.warning(
                "no further examples are kept of this run: %s", error, exc_info=not isinstance(error, InputError)
            )
