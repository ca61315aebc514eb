"""What a driver asks Ray for, without a cluster."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cookhouse.engine.transports.ray.addresses import LOCAL, RUNNING, why_not_joined, why_too_late
from cookhouse.engine.transports.ray.bundles import Needs
from cookhouse.errors import InputError, ServiceError

if TYPE_CHECKING:
    from cookhouse.engine.transports.ray.cluster import Cluster

with_ray = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]
CLUSTER = "cookhouse.engine.transports.ray.cluster"


class FakeNode:
    def __init__(self, done: list[str], address: str) -> None:
        self._done = done
        done.append(f"node of {address}")

    def end(self) -> None:
        self._done.append("ended")


class FakeRay:
    """Nodes with cores, and places on them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *cpus: int) -> None:
        self.cpus = list(cpus)
        """That each node has."""
        self.free = list(cpus)
        self.options: dict[str, Any] = {}
        context = SimpleNamespace(get_node_id=lambda: "0", gcs_address="127.0.0.1:1")
        monkeypatch.setattr("ray.init", lambda _, **options: self.options.update(options))
        monkeypatch.setattr("ray.get_runtime_context", lambda: context)
        monkeypatch.setattr("ray.nodes", self._nodes)
        monkeypatch.setattr("ray.available_resources", lambda: {"CPU": float(sum(self.free))})
        monkeypatch.setattr("ray.util.remove_placement_group", lambda _: None)
        monkeypatch.setattr(f"{CLUSTER}.placement_group", lambda bundles: SimpleNamespace(wait=self._place(bundles[0])))

    def _nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": str(index),
                "Alive": True,
                "NodeManagerAddress": "127.0.0.1",
                "NodeManagerPort": 1,
                "Resources": {"CPU": float(number)},
            }
            for index, number in enumerate(self.cpus)
        ]

    def _place(self, bundle: dict[str, float]) -> Callable[[float], bool]:
        def wait(_: float) -> bool:
            for index, free in enumerate(self.free):
                if free >= bundle["CPU"]:
                    self.free[index] -= int(bundle["CPU"])
                    return True
            return False

        return wait


def joined(num_workers: int, bundles: dict[str, Any] | None = None, address: str = LOCAL) -> "Cluster":
    """`bundles` are those that an earlier one has chosen, and get those that this one does."""
    from cookhouse.engine.transports.ray.cluster import Cluster

    kept = {} if bundles is None else bundles
    needs = Needs(num_cpus=None, num_gpus=None, memory_bytes=None, num_workers=num_workers)
    return Cluster(address, needs, dict(kept), kept.__setitem__)


def placed(cluster: "Cluster", *indices: int) -> list[dict[str, float]]:
    """What workers take, by number."""
    return [cluster.place(f"worker{index}", index)[1] for index in indices]


class TestPlaces:
    pytestmark = with_ray

    def test_a_cluster_of_its_own_has_the_cores_of_this_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch workers that share the one core that `taskset` leaves."""
        ray = FakeRay(monkeypatch, 3)
        monkeypatch.setattr(f"{CLUSTER}.allowed_cores", lambda: [1, 4, 5])
        monkeypatch.setattr(f"{CLUSTER}.num_within_quota", lambda number: number)
        joined(1)
        assert ray.options["num_cpus"] == 3

    def test_a_machine_that_is_no_node_becomes_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch a server that never comes back after the head: the node of its machine ends with that."""
        FakeRay(monkeypatch, 3)
        done: list[str] = []
        monkeypatch.setattr("ray.shutdown", lambda: done.append("left"))
        monkeypatch.setattr(f"{CLUSTER}.check_address", lambda _: None)
        for is_node, expected in ((True, ["left"]), (False, ["node of head:6379", "left", "ended"])):
            monkeypatch.setattr(f"{CLUSTER}.is_node", lambda _, is_node=is_node: is_node)
            monkeypatch.setattr(f"{CLUSTER}.OwnNode", partial(FakeNode, done))
            done.clear()
            joined(1, address="head:6379").leave()
            assert done == expected

    def test_nodes_that_come_up_are_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch a server that ends at its start, as after a crash, because the head was up before the nodes."""
        ray = FakeRay(monkeypatch, 0)
        monkeypatch.setattr(f"{CLUSTER}.check_address", lambda _: None)
        monkeypatch.setattr(f"{CLUSTER}.is_node", lambda _: True)
        late = [[0, 1], [0, 1, 1]]

        def come_up(_: float) -> None:
            ray.cpus = late.pop(0)
            ray.free = list(ray.cpus)

        monkeypatch.setattr(f"{CLUSTER}.time.sleep", come_up)
        assert placed(joined(2, address="head:6379"), 0, 1) == [{"CPU": 1}] * 2
        assert late == []
        monkeypatch.setattr(f"{CLUSTER}._NODES_SECONDS", 0.0)
        with pytest.raises(InputError, match="room for 2"):
            placed(joined(3, address="head:6379"), 0)

    def test_a_cluster_of_its_own_leaves_no_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch a disk that fills up with Ray's logs and sockets, a folder with each start."""
        ray = FakeRay(monkeypatch, 3)
        monkeypatch.setattr("ray.shutdown", lambda: None)
        cluster = joined(1)
        folder = Path(ray.options["_temp_dir"])
        assert folder.is_dir()
        cluster.leave()
        assert not folder.exists()

    def test_the_share_stays_where_a_node_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch a worker in place of a lost one that wants another number of cores than the others have."""
        ray = FakeRay(monkeypatch, 6, 6)
        cluster = joined(3)
        assert placed(cluster, 0, 1, 2) == [{"CPU": 3}] * 3
        ray.cpus, ray.free = [6], [3]
        assert placed(cluster, 2) == [{"CPU": 3}]

    def test_the_share_stays_in_the_next_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch workers of another size after a head that came back before its nodes did."""
        ray = FakeRay(monkeypatch, 6, 6)
        bundles: dict[str, Any] = {}
        placed(joined(2, bundles), 0)
        ray.cpus, ray.free = [2], [2]
        with pytest.raises(InputError, match=r"a worker is to have 6 CPUs.*its 1 nodes have 2 CPUs"):
            placed(joined(2, bundles), 0)
        ray.cpus, ray.free = [2, 6], [2, 6]
        assert placed(joined(2, bundles), 0) == [{"CPU": 6}]

    def test_an_added_worker_takes_what_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch a worker that cannot be added to nodes of which others have a share each."""
        ray = FakeRay(monkeypatch, 4, 4)
        cluster = joined(2)
        assert placed(cluster, 0, 1) == [{"CPU": 4}] * 2
        ray.cpus, ray.free = [4, 4, 1, 1], [0, 0, 1, 1]
        assert placed(cluster, 2) == [{"CPU": 1}]

    def test_an_added_worker_keeps_what_it_took(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Would catch one that computes in fewer threads, and so other numbers, after it was lost."""
        ray = FakeRay(monkeypatch, 4, 4)
        bundles: dict[str, Any] = {}
        cluster = joined(1, bundles)
        assert placed(cluster, 0, 1) == [{"CPU": 4}] * 2
        ray.free = [0, 2]
        monkeypatch.setattr(f"{CLUSTER}._PLACE_SECONDS", 0.0)
        for each in (cluster, joined(1, bundles)):
            with pytest.raises(InputError, match="a worker is to have 4 CPUs"):
                placed(each, 1)
        assert placed(cluster, 2) == [{"CPU": 2}]

    def test_where_nothing_is_free_a_worker_is_not_added(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeRay(monkeypatch, 4)
        cluster = joined(1)
        placed(cluster, 0)
        with pytest.raises(InputError, match=r"a worker that is added takes 1 CPUs, 0 GPUs at least.*drain a worker"):
            placed(cluster, 1)

    def test_a_node_that_is_gone_since_is_nobody_s_bug(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeRay(monkeypatch, 4)
        with pytest.raises(ServiceError, match="is gone"):
            joined(1).node("")


def test_why_there_is_no_cluster_is_said_of_the_one_that_was_asked_for() -> None:
    """Would catch an operator who is sent to a head, where the cluster is to be of this machine."""
    local = why_not_joined(LOCAL, "no\nspace left")
    assert local.startswith("Ray cannot start a cluster of this machine: no space left; see that the folder")
    assert why_too_late(LOCAL, 120.0).startswith(
        "Ray cannot start a cluster of this machine: it took longer than 120 s"
    )
    assert "give HOST:PORT of a head (Could not find" in why_not_joined(RUNNING, "Could not find any running instance")
    assert "`ray start --address=head:6379 --num-cpus=0 --block`" in why_not_joined("head:6379", "nothing")
    assert "head does not answer" in why_too_late("head:6379", 20.0)
