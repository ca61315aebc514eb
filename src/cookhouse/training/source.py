"""Where work comes from: the protocol that the loop reads, and batches of a data set, prepared one ahead."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import tinker

from cookhouse.training.work import Cursor, Work


class Source(Protocol):
    """Yields work in order. Opened by the loop, which reads it from one task and closes it."""

    @property
    def cursor(self) -> Cursor:
        """The step that the next piece of work belongs to: what a checkpoint must record."""

    @property
    def needs_answers(self) -> bool:
        """Whether the next piece may take long, or hangs on the pieces before it: these are to be finished first."""

    @property
    def progress(self) -> str:
        """How far the next piece is, in words, for whoever waits for it; empty if there is nothing to say."""

    async def next_work(self) -> Work | None:
        """The next piece, or None when there is no more. Cancelled, it loses nothing that another run cannot redo."""

    async def aclose(self) -> None:
        """Stop preparing work ahead."""


class Batches(Protocol):
    """A data set in batches, whose order depends on the epoch alone."""

    def set_epoch(self, epoch: int) -> None:
        """Put the batches into an epoch's order."""

    def get_batch(self, index: int) -> Sequence[tinker.Datum]:
        """A batch of the present epoch."""

    def __len__(self) -> int:
        """Batches in an epoch."""


class SupervisedSource:
    """Batches of a data set, epoch after epoch, `total_steps` in all; the next is prepared while one is trained on.

    next_work ──takes──► the one prepared batch ◄──makes── a worker thread, one at a time
    """

    def __init__(self, dataset: Batches, *, total_steps: int, cursor: Cursor | None = None) -> None:
        self._dataset = dataset
        self._total_steps = total_steps
        self._cursor = cursor or Cursor()
        self._epoch: int | None = None
        self._prepared: asyncio.Task[Work] | None = None

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    @property
    def needs_answers(self) -> bool:
        return False

    @property
    def progress(self) -> str:
        return ""

    async def next_work(self) -> Work | None:
        if self._cursor.step >= self._total_steps:
            return None
        if self._prepared is None:
            self._prepare(self._cursor)
        assert self._prepared is not None
        work = await self._prepared
        self._prepared = None
        self._cursor = self._after(work.cursor)
        if self._cursor.step < self._total_steps:
            self._prepare(self._cursor)
        return work

    async def aclose(self) -> None:
        if self._prepared is not None:
            # A worker thread cannot be cancelled: it is waited for, so that it outlives nothing that it uses.
            await asyncio.gather(self._prepared, return_exceptions=True)
            self._prepared = None

    def _prepare(self, cursor: Cursor) -> None:
        self._prepared = asyncio.create_task(asyncio.to_thread(self._make, cursor), name="prepare batch")

    def _make(self, cursor: Cursor) -> Work:
        if self._epoch != cursor.epoch:
            self._dataset.set_epoch(cursor.epoch)
            self._epoch = cursor.epoch
        return Work(cursor=cursor, data_D=self._dataset.get_batch(cursor.batch))

    def _after(self, cursor: Cursor) -> Cursor:
        is_last = cursor.batch + 1 == len(self._dataset)
        return Cursor(epoch=cursor.epoch + is_last, batch=0 if is_last else cursor.batch + 1, step=cursor.step + 1)
