"""The workers of a server: started together, added one by one, closed. Lives on the event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from cookhouse.engine.contract import Up
from cookhouse.server.pool.plans import Kind, WorkerPlan, next_plan
from cookhouse.server.pool.worker_handle import WorkerHandle, words_of

_log = logging.getLogger(__name__)
_END_SECONDS = 1.0


class Roster:
    def __init__(
        self,
        plans: Sequence[WorkerPlan],
        make_member: Callable[[WorkerPlan], WorkerHandle],
        on_failed: Callable[[WorkerHandle], None],
        end: Callable[[WorkerHandle, float], Awaitable[None]],
    ) -> None:
        """`on_failed` is told of one that was added, and cannot be started; `end` closes it."""
        self.workers = [make_member(plan) for plan in plans]
        """One list, which they come to and leave."""
        self._make_member = make_member
        self._on_failed = on_failed
        self._end = end
        self._next_index = 1 + max(plan.index for plan in plans)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_up(self) -> bool:
        """Whether there are workers that take commands, to train and to sample."""
        up = [member.plan for member in self.workers if member.is_up]
        can_sample = any(plan.samples for plan in up)
        return can_sample and (any(plan.trains for plan in up) or not any(one.plan.trains for one in self.workers))

    @property
    def staying(self) -> Sequence[WorkerHandle]:
        return [member for member in self.workers if not member.is_draining]

    @property
    def anyone(self) -> WorkerHandle:
        """For what any worker can do: one that is up, if there is one."""
        return next((member for member in self.workers if member.is_up), self.workers[0])

    @property
    def down(self) -> Sequence[WorkerHandle]:
        return [member for member in self.workers if not member.is_up]

    async def open(self) -> Up:
        """Start the workers, and wait until they take commands; what the first one told, and what they all compute on.

        Raises:
            CookhouseError: one cannot be made, for what it says.
        """
        ups = await asyncio.gather(*(member.open() for member in self.workers))
        descriptions = [up.description for up in ups]
        if len(ups) == 1:
            return ups[0]
        if len(set(descriptions)) == 1:
            return replace(ups[0], description=f"{len(ups)} workers, each {descriptions[0]}")
        each = (f"{member.name} ({words})" for member, words in zip(self.workers, descriptions, strict=True))
        return replace(ups[0], description=", ".join(each))

    async def close(self, seconds: float) -> bool:
        """End the workers after their present turns; False if that takes longer than `seconds`."""
        for task in self._tasks:
            task.cancel()
        return all(await asyncio.gather(*(member.close(seconds) for member in self.workers)))

    def add(self, kind: Kind | None = None) -> WorkerPlan:
        """Start one more worker, which is given work once it is up. Raises as `next_plan`."""
        plan = next_plan([member.plan for member in self.workers], self._next_index, kind)
        self._next_index += 1
        member = self._make_member(plan)
        self.workers.append(member)
        task = asyncio.create_task(self._open(member), name=f"start of {member.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return plan

    async def _open(self, member: WorkerHandle) -> None:
        try:
            await member.open()
        except Exception as error:  # also what a machine without memory or descriptors raises
            if member in self.workers:  # it was not drained meanwhile
                _log.error("%s could not be started: %s", member.name, words_of(error))
                self._on_failed(member)
            await self._end(member, _END_SECONDS)
