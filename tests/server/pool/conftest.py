"""Members that have no worker, for what decides by what it knows of them."""

from collections.abc import Callable, Sequence

import pytest

from cookhouse.engine.contract import Worker
from cookhouse.server.pool.plans import WorkerPlan, plans_of
from cookhouse.server.pool.worker_handle import WorkerHandle

MakeWorkers = Callable[..., Sequence[WorkerHandle]]


def _no_worker(plan: WorkerPlan) -> Worker:
    raise AssertionError(f"{plan.name} is not started")


@pytest.fixture
def make_workers() -> MakeWorkers:
    """Makes those of `plans_of`, as if they were up."""

    def make(**numbers: int) -> Sequence[WorkerHandle]:
        plans = plans_of(**numbers)
        workers = [WorkerHandle(plan, _no_worker, take=lambda *_: None, on_lost=lambda *_: None) for plan in plans]
        for worker in workers:
            worker.is_up = True
        return workers

    return make
