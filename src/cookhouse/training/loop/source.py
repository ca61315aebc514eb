"""Sources of work: the protocol that the loop reads, and batches of a data set, prepared one ahead."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import tinker

from cookhouse.errors import InputError
from cookhouse.training.work import Assembled, Assembler, Work
from cookhouse.weights.checkpoints import Cursor

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[P_co]):
    """Yields work in order. Opened by the loop, which reads it from one task and closes it."""

    @property
    def cursor(self) -> Cursor:
        """The step that the next piece of work belongs to: what a checkpoint must record."""

    @property
    def needs_answers(self) -> bool:
        """True if the next piece may take long, or hangs on the pieces before it: these are to be finished first."""

    @property
    def progress(self) -> str:
        """Progress of the next piece, in words, for whoever waits for it; empty if there is nothing to say."""

    async def next_work(self) -> Work[P_co] | None:
        """The next piece, or None when there is no more. Cancelled, it loses nothing that another run cannot redo."""

    async def aclose(self) -> None:
        """Stop preparing work ahead."""


class Batches(Protocol[T_co]):
    """A data set in batches, whose order depends on the epoch alone."""

    def set_epoch(self, epoch: int) -> None:
        """Put the batches into an epoch's order."""

    def get_batch(self, index: int) -> T_co:
        """A batch of the present epoch."""

    def __len__(self) -> int:
        """Batches in an epoch."""


@runtime_checkable
class Remembering(Protocol):
    """A data set that remembers something between steps, such as how often a problem was solved. A checkpoint saves it,
    and a resumed run restores it.
    """

    def state(self) -> Mapping[str, Any]:
        """State to save, in JSON's types; called between two batches."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what was saved."""


class BatchSource(Generic[T, P]):
    """Batches of a data set, epoch after epoch, `total_steps` in all; the next is made while one is trained on, unless
    it depends on the weights. What a `Remembering` data set remembers is part of the cursor.

    next_work ──takes──► the one prepared batch ◄──assembles── read by a worker thread, one at a time
    """

    def __init__(
        self,
        dataset: Batches[T],
        assemble: Assembler[T, P],
        *,
        total_steps: int,
        steps_per_epoch: int,
        cursor: Cursor | None = None,
        ahead: bool = True,
    ) -> None:
        """`steps_per_epoch`: so many batches are taken of each epoch, the first ones. `ahead`: whether the next is made
        while one is trained on; without it each is made once the step before it is over, as from the present weights.
        """
        self._dataset = dataset
        self._assemble = assemble
        self._total_steps = total_steps
        self._steps_per_epoch = steps_per_epoch
        self._cursor = cursor or Cursor()
        self._ahead = ahead
        self._epoch: int | None = None
        self._reading: asyncio.Task[T] | None = None
        self._prepared: asyncio.Task[Work[P]] | None = None
        if isinstance(dataset, Remembering) and self._cursor.loop_state:
            dataset.restore(self._cursor.loop_state)

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    @property
    def needs_answers(self) -> bool:
        return not self._ahead

    @property
    def progress(self) -> str:
        return ""

    async def next_work(self) -> Work[P] | None:
        if self._cursor.step >= self._total_steps:
            return None
        if self._prepared is None:
            self._prepare(self._cursor)
        assert self._prepared is not None
        work = await self._prepared
        self._prepared = None
        self._cursor = self._after(work.cursor)
        if self._ahead and self._cursor.step < self._total_steps:
            self._prepare(self._cursor)
        return work

    async def aclose(self) -> None:
        if self._prepared is not None:
            self._prepared.cancel()
            await asyncio.gather(self._prepared, return_exceptions=True)
            self._prepared = None
        if self._reading is not None:
            # A worker thread cannot be cancelled: it is waited for, so that it outlives nothing that it uses.
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    def _prepare(self, cursor: Cursor) -> None:
        self._prepared = asyncio.create_task(self._make(cursor), name="prepare batch")

    async def _make(self, cursor: Cursor) -> Work[P]:
        self._reading = asyncio.create_task(asyncio.to_thread(self._read, cursor), name="read batch")
        made = await self._assemble(await asyncio.shield(self._reading))
        return Work(
            cursor=cursor,
            data_D=made.data_D,
            payload=made.payload,
            metrics=made.metrics,
            labels=made.labels,
            ready_seconds=time.perf_counter(),
        )

    def _read(self, cursor: Cursor) -> T:
        if self._epoch != cursor.epoch:
            self._dataset.set_epoch(cursor.epoch)
            self._epoch = cursor.epoch
        return self._dataset.get_batch(cursor.batch)

    def _after(self, cursor: Cursor) -> Cursor:
        is_last = cursor.batch + 1 == self._steps_per_epoch
        return Cursor(
            epoch=cursor.epoch + is_last,
            batch=0 if is_last else cursor.batch + 1,
            step=cursor.step + 1,
            loop_state=_saved_state(self._dataset),
        )


def _saved_state(dataset: object) -> Mapping[str, Any]:
    """A copy of what a data set remembers, as JSON gives it back. Raises `InputError` for what is not JSON's."""
    if not isinstance(dataset, Remembering):
        return {}
    try:
        state: dict[str, Any] = json.loads(json.dumps(dict(dataset.state()), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"state() of {type(dataset).__name__} cannot be saved with a checkpoint ({error}); return texts, numbers, "
            "lists and dicts"
        ) from error
    return state


async def as_datums(batch: Sequence[tinker.Datum]) -> Assembled[None]:
    """The assembler of batches that are datums already."""
    return Assembled(data_D=batch, payload=None)
