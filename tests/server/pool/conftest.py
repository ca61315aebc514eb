"""Handles that have no worker, for what decides by what it knows of them."""

from collections.abc import Callable

import pytest

from cookhouse.engine.contract import Worker
from cookhouse.server.pool.plans import WorkerPlan, plans_of
from cookhouse.server.pool.workers import Workers

MakeWorkers = Callable[..., Workers]


def _no_worker(plan: WorkerPlan) -> Worker:
    raise AssertionError(f"{plan.name} is not started")


@pytest.fixture
def make_workers() -> MakeWorkers:
    """Makes those of `plans_of`, as if they were up."""

    def make(**numbers: int) -> Workers:
        workers = Workers(plans_of(**numbers), _no_worker, lambda *_: None)
        for worker in workers:
            worker.is_up = True
        return workers

    return make
