"""Workers of a server: started together, added one by one, closed. Live on the event loop."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

from cookhouse.engine.contract import Up
from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.server.pool.plans import Kind, WorkerPlan, next_plan
from cookhouse.server.pool.worker_handle import MakeWorker, Take, WorkerHandle


class Workers(Sequence[WorkerHandle]):
    """Handles of all that there are at the moment, in the order in which they came."""

    def __init__(self, plans: Sequence[WorkerPlan], make_worker: MakeWorker, take: Take) -> None:
        """See `WorkerHandle`."""
        self._make_worker = make_worker
        self._take = take
        self._workers: list[WorkerHandle] = []
        self._next_index = 1 + max(plan.index for plan in plans)
        for plan in plans:
            self._append(plan)

    @overload
    def __getitem__(self, index: int) -> WorkerHandle: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[WorkerHandle]: ...
    def __getitem__(self, index: int | slice) -> WorkerHandle | Sequence[WorkerHandle]:
        return self._workers[index]

    def __iter__(self) -> Iterator[WorkerHandle]:
        return iter(self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def is_up(self) -> bool:
        """True if there are workers that take commands, to train and to sample."""
        up = [worker.plan for worker in self._workers if worker.is_up]
        can_sample = any(plan.samples for plan in up)
        return can_sample and (any(plan.trains for plan in up) or not any(one.plan.trains for one in self._workers))

    @property
    def staying(self) -> Sequence[WorkerHandle]:
        """Workers that are not drained."""
        return [worker for worker in self._workers if not worker.is_draining]

    @property
    def down(self) -> Sequence[WorkerHandle]:
        return [worker for worker in self._workers if not worker.is_up]

    @property
    def anyone(self) -> WorkerHandle:
        """For what any worker can do: one that is up, if there is one."""
        return next((worker for worker in self._workers if worker.is_up), self._workers[0])

    def drainable(self, name: str) -> WorkerHandle:
        """The worker of a name, where others can go on with what it does.

        Raises:
            InputError: there is no such worker, or no other that trains, or samples, and is up.
        """
        staying = self.staying
        found = next((worker for worker in staying if worker.name == name), None)
        if found is None:
            names = listed([worker.name for worker in staying])
            raise InputError(f"there is no worker {name!r} that could leave; there are {names}")
        others = [worker for worker in staying if worker is not found]
        if not _can_replace(found, others):
            raise InputError(
                f"{name} is the last worker of its kind; add another of that kind first, or stop the server"
            )
        if not _can_replace(found, [worker for worker in others if worker.is_up]):
            names = listed([worker.name for worker in others if not worker.is_up])
            raise InputError(
                f"{name} is needed until another of its kind is up: {names} is being started; try again then"
            )
        return found

    async def open(self) -> Up:
        """Start the workers, and wait until they take commands; what the first one reported, and what they all compute
        on.

        Raises:
            CookhouseError: one cannot be made, for what it says.
        """
        ups = await asyncio.gather(*(worker.open() for worker in self._workers))
        descriptions = [up.description for up in ups]
        if len(ups) == 1:
            return ups[0]
        if len(set(descriptions)) == 1:
            return replace(ups[0], description=f"{len(ups)} workers, each {descriptions[0]}")
        each = (f"{worker.name} ({words})" for worker, words in zip(self._workers, descriptions, strict=True))
        return replace(ups[0], description=", ".join(each))

    async def close(self, seconds: float) -> bool:
        """End the workers after their present turns; False if that takes longer than `seconds`."""
        return all(await asyncio.gather(*(worker.close(seconds) for worker in self._workers)))

    def add(self, kind: Kind | None = None) -> WorkerHandle:
        """One more, which is yet to be opened. Raises as `next_plan`."""
        plan = next_plan([worker.plan for worker in self._workers], self._next_index, kind)
        self._next_index += 1
        return self._append(plan)

    def remove(self, worker: WorkerHandle) -> None:
        """Have a worker be none of them any more; it is yet to be closed."""
        worker.is_draining = True
        self._workers.remove(worker)
        for one in (worker, *self._workers):
            one.is_only = len(self._workers) == 1

    def _append(self, plan: WorkerPlan) -> WorkerHandle:
        worker = WorkerHandle(plan, self._make_worker, self._take)
        self._workers.append(worker)
        for one in self._workers:
            one.is_only = len(self._workers) == 1
        return worker


def _can_replace(worker: WorkerHandle, others: Sequence[WorkerHandle]) -> bool:
    """True if others train, if it does, and sample, if it does."""
    trains, samples = any(one.plan.trains for one in others), any(one.plan.samples for one in others)
    return (trains or not worker.plan.trains) and (samples or not worker.plan.samples)
