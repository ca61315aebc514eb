"""The server's machine as a node of a cluster, which nobody else has made it."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.transports.ray.clusters import TwoNodes, is_running
from tests.engine.transports.ray.test_losses import cluster_below
from tests.waiting import next_line, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]
OWN_NODE = "cookhouse.engine.transports.ray.cluster"


@pytest.mark.parametrize(
    ("nodes", "is_one"),
    [([("203.0.113.9", 0), ("127.0.0.1", 0)], True), ([("203.0.113.9", 0), ("127.0.0.1", 1)], False), ([], False)],
)
def test_only_a_living_node_of_this_machine_counts(monkeypatch: pytest.MonkeyPatch, nodes: Any, is_one: bool) -> None:
    """Would catch a server that waits a minute for Ray to say that this machine is no node, or is one no more."""
    from cookhouse.engine.transports.ray.cluster import is_node

    found = {
        index: SimpleNamespace(node_manager_address=host, state=state) for index, (host, state) in enumerate(nodes)
    }
    client = SimpleNamespace(get_all_node_info=lambda: found)
    monkeypatch.setattr(f"{OWN_NODE}.GcsClient", lambda *, address: client if address == "head:1" else None)
    assert is_node("head:1") == is_one


def test_a_node_ends_with_a_killed_driver(ray_cluster: TwoNodes) -> None:
    """Would catch a node that is left behind by each server that was killed."""
    program = f"from {OWN_NODE} import OwnNode; OwnNode({ray_cluster.address!r}); print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert next_line(driver) == "up\n"
        wait_until(lambda: cluster_below(driver.pid))
        raylets = cluster_below(driver.pid)
        driver.kill()
    wait_until(lambda: not any(map(is_running, raylets)))
