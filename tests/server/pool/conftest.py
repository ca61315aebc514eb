"""Members that have no worker, for what decides by what it knows of them."""

from collections.abc import Callable, Sequence

import pytest

from cookhouse.engine.contract import Worker
from cookhouse.server.pool.member import Member
from cookhouse.server.pool.plans import WorkerPlan, plans_of

MakeMembers = Callable[..., Sequence[Member]]


def _no_worker(plan: WorkerPlan) -> Worker:
    raise AssertionError(f"{plan.name} is not started")


@pytest.fixture
def make_members() -> MakeMembers:
    """Makes those of `plans_of`, as if they were up."""

    def make(**numbers: int) -> Sequence[Member]:
        plans = plans_of(**numbers)
        members = [Member(plan, _no_worker, take=lambda *_: None, on_lost=lambda *_: None) for plan in plans]
        for member in members:
            member.is_up = True
        return members

    return make
