"""Nodes and the head of a cluster of Ray's, killed under a server that joined it."""

from pathlib import Path

import pytest

from cookhouse.engine.transports.ray.workers import RayWorkers
from tests.engine.transports.calls import is_up, reason, run, told
from tests.engine.transports.ray.clusters import FAKE_DRIVER, running
from tests.engine.transports.ray.fixtures import ray_is_here
from tests.kills.nodes import Nodes
from tests.kills.runs import Moment, Setting
from tests.kills.runs import run as run_tenants

__all__ = ["ray_is_here"]
pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]


def test_a_killed_node_or_head_is_another_at_the_same_address(tmp_path: Path) -> None:
    """Would catch kills that kill nothing, and what a worker leaves on a node."""

    async def test() -> None:
        with Nodes(1) as nodes:
            address = nodes.address
            with RayWorkers(address, command=FAKE_DRIVER, num_cpus=1) as workers:
                seen: set[int] = set()
                for kill in (nodes.kill_node, nodes.kill_head):
                    async with running(workers, tmp_path) as worker:
                        await told(worker, is_up)
                        (pid,) = nodes.actors()
                        seen.add(pid)
                        kill()
                        await reason(worker)
                async with running(workers, tmp_path) as worker:
                    await told(worker, is_up)
                    assert len(seen | set(nodes.actors())) == 3
            assert nodes.address == address
            assert nodes.left() == []

    run(test())


@pytest.mark.slow
def test_nothing_is_lost_with_a_node_or_the_head(tmp_path: Path) -> None:
    """Would catch a model that nobody brings back, or that comes back in another size, and what stays behind."""
    setting = Setting(loops=("supervised",), precision="float32", deterministic=True)
    with Nodes(1) as nodes:
        whole = run_tenants(tmp_path / "whole", setting, nodes=nodes)
        assert whole.errors == {}
        moments = [
            Moment(after_answers=whole.num_answers // 4, wait_seconds=0.0, of_ray="node"),
            Moment(after_answers=whole.num_answers // 2, wait_seconds=0.0, of_ray="head"),
        ]
        outcome = run_tenants(tmp_path / "killed", setting, moments, nodes=nodes)
    assert outcome.differences(whole, setting.loops) == [], outcome.kills
