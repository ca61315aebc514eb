"""One of a server's workers: what is left of one that was lost."""

import asyncio

from tests.server.workers.scripted import ScriptedWorker, settle

from cookhouse.engine.contract import Lost
from cookhouse.server.workers.member import Member
from cookhouse.server.workers.plans import WorkerPlan


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
        member = Member(WorkerPlan(), make, take=lambda *_: None, on_lost=lambda *_: None)
        await member.open()
        made[0].tell(Lost(worker="engine", reason="its node is silent"))
        while len(made) < 2:
            await settle()
        assert await member.close(1.0)
        assert all(worker.is_closed for worker in made)

    asyncio.run(asyncio.wait_for(test(), 60))
