"""Weights that go from one worker to others.

sample ──► its worker has the weights ──► drawn
             ├── they are in a file ──► Fetch, then drawn
             └── another worker has them ──► SaveSnapshot there ──► a file ──► the sample goes on
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from cookhouse.engine.contract import Account, Command, Fetch, Output, Saved, SaveSnapshot
from cookhouse.errors import InputError
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.weights import Shape, Weights
from cookhouse.server.pool.worker_handle import WorkerHandle
from cookhouse.server.refusals import LostError

_LOOK_SECONDS = 0.05

Ask = Callable[[WorkerHandle, Command], "asyncio.Future[Output]"]
"""Submits a command to one of the workers."""


class Transfers:
    """Lives on the event loop."""

    def __init__(
        self,
        weights: Weights,
        workers: Sequence[WorkerHandle],
        ask: Ask,
        go_on: Callable[[PendingCommand, BaseException | None], None],
        sampled: Callable[[], Collection[str]],
    ) -> None:
        """`workers` is the list that the server's workers come to and leave. `go_on` is given each sample that waited,
        with why its weights could not be written; `sampled` says which weights samples under way read.
        """
        self._weights = weights
        self._members = workers
        self._ask = ask
        self._go_on = go_on
        self._sampled = sampled
        self._moving: dict[str, list[PendingCommand]] = {}
        """By snapshot that is being written for others: the samples that wait for it."""

    def __len__(self) -> int:
        return len(self._moving)

    def bring(self, snapshot_id: str, worker: WorkerHandle, call: PendingCommand) -> bool:
        """Have a worker read weights that it lacks; False: the sample waits, and goes on when they are written.

        Raises:
            LostError: nobody has them any more.
        """
        if snapshot_id in worker.snapshots:
            return True
        fetch = self._weights.fetch(snapshot_id)
        if fetch is not None:
            self._fetch(worker, fetch)
            return True
        if snapshot_id not in self._weights.shapes:
            return True  # the worker says that there are none
        holder = self._weights.holder(snapshot_id, self._members)
        if holder is None:
            raise LostError("the weights of this sampling client made room for newer ones; publish them again")
        if snapshot_id not in self._moving:
            self._move(snapshot_id, holder)
        self._moving[snapshot_id].append(call)
        return False

    async def rescue(self, worker: WorkerHandle, deadline: float) -> None:
        """Write what no worker has that stays; wait until that is done, or has failed, or until `deadline`."""
        staying = [one for one in self._members if not one.is_draining]
        names = [name for name in self._weights.only_at(worker, staying) if name in self._weights.shapes]
        for snapshot_id in names:
            if snapshot_id not in self._moving:
                self._move(snapshot_id, worker)
        loop = asyncio.get_running_loop()
        while not self._moving.keys().isdisjoint(names) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    def _fetch(self, worker: WorkerHandle, fetch: Fetch) -> None:
        """A failure of it is that of the samples behind it; the next ones try again."""
        answer = self._ask(worker, replace(fetch, command_id=uuid.uuid4().hex))
        worker.snapshots.add(fetch.snapshot_id)
        worker.fetched.add(fetch.snapshot_id)

        def look(done: asyncio.Future[Output]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None and not isinstance(error, LostError):
                # Not forgotten there: the samples behind it are yet to be told what failed.
                worker.note_dropped(fetch.snapshot_id)

        answer.add_done_callback(look)

    def _move(self, snapshot_id: str, holder: WorkerHandle) -> None:
        """Have weights written for other workers."""
        moves, shape = self._weights.moves, self._weights.shapes[snapshot_id]
        assert moves is not None
        self._moving[snapshot_id] = []
        url = moves.url(snapshot_id)
        save = SaveSnapshot(command_id=uuid.uuid4().hex, account=shape.account, snapshot_id=snapshot_id, url=url)

        def end(done: asyncio.Future[Output]) -> None:
            waiting = self._moving.pop(snapshot_id)
            if done.cancelled():
                return
            error = done.exception()
            if error is None:
                self._note(snapshot_id, shape, done.result())
            if isinstance(error, InputError):  # they were dropped
                holder.note_dropped(snapshot_id)
            for call in waiting:
                self._go_on(call, error)

        self._ask(holder, save).add_done_callback(end)

    def _note(self, snapshot_id: str, shape: Shape, saved: Output) -> None:
        moves = self._weights.moves
        assert moves is not None
        assert isinstance(saved, Saved)
        fetch = Fetch(
            command_id="",
            account=Account(shape.account.owner, ""),
            snapshot_id=snapshot_id,
            base_model=shape.base_model,
            lora=shape.lora,
            url=saved.url,
            sha256=saved.sha256 or None,
        )
        moves.add(fetch, sum(saved.sizes.values()))
        if snapshot_id not in self._weights.shapes:  # forgotten meanwhile
            moves.drop(snapshot_id)
        if not moves.is_full:
            return
        sampled = self._sampled()
        for dropped in moves.make_room(lambda name: name in sampled or self._weights.is_needed(name)):
            self.forget_copies(dropped, self._weights.shapes[dropped].account)

    def forget_copies(self, snapshot_id: str, account: Account) -> None:
        """Have workers that read a file which is deleted forget what they read: they could not read it again."""
        for worker in self._members:
            if snapshot_id in worker.snapshots and snapshot_id in worker.fetched:
                worker.forget_snapshot(account, snapshot_id)
