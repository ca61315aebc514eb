"""One of a server's workers: what is left of one that was lost."""

import asyncio

from tests.server.pool.scripted import ScriptedWorker, settle

from cookhouse.engine.contract import Event, Evicted, Lost, Up
from cookhouse.server.pool.plans import WorkerPlan
from cookhouse.server.pool.worker_handle import NotStarted, WorkerHandle


class Remembering(ScriptedWorker):
    is_closed = False

    async def close(self, seconds: float) -> bool:
        self.is_closed = True
        return await super().close(seconds)


def test_a_lost_worker_is_closed_before_another_is_made() -> None:
    """Would catch one that keeps its GPU, or its place on a node, where the next one is to have it."""
    made: list[Remembering] = []

    def make(plan: WorkerPlan) -> Remembering:
        assert all(worker.is_closed for worker in made)
        made.append(Remembering(plan))
        return made[-1]

    async def test() -> None:
        worker = WorkerHandle(WorkerPlan(), make, lambda *_: None)
        await worker.open()
        made[0].tell(Lost(worker="engine", reason="its node is silent"))
        while len(made) < 2:
            await settle()
        assert await worker.close(1.0)
        assert all(worker.is_closed for worker in made)

    asyncio.run(asyncio.wait_for(test(), 60))


def test_one_that_dies_right_after_it_is_up_is_replaced() -> None:
    """Would catch a worker that counts as up for ever, since its end came with its first words."""
    made: list[ScriptedWorker] = []
    taken: list[Event | NotStarted] = []

    def make(plan: WorkerPlan) -> ScriptedWorker:
        made.append(ScriptedWorker(plan))
        if len(made) == 2:
            made[-1].tell(Evicted(snapshot_id="w"), Lost(worker="engine", reason="no memory"))
        return made[-1]

    async def test() -> None:
        worker = WorkerHandle(WorkerPlan(), make, lambda _, event: taken.append(event))
        await worker.open()
        made[0].tell(Lost(worker="engine", reason="killed"))
        while len(made) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await settle()
        reasons = [event.reason for event in taken if isinstance(event, Lost)]
        assert reasons == ["killed", "no memory"]
        assert [type(event) for event in taken] == [Up, Lost, Up, Evicted, Lost, Up]
        assert worker.is_up
        await worker.close(1.0)

    asyncio.run(asyncio.wait_for(test(), 60))
