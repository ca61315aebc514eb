"""What a worker takes of a node, where it was left open."""

from typing import Any

import pytest

from cookhouse.engine.transports.ray.bundles import Needs, bundle_of, device_of, memory_share
from cookhouse.errors import InputError

GIB = 2.0**30


def needs(num_workers: int, **asked: Any) -> Needs:
    return Needs(**{"num_cpus": None, "num_gpus": None, "memory_bytes": None, "num_workers": num_workers, **asked})


def nodes(*cpus: int) -> list[dict[str, float]]:
    return [{"CPU": float(number), "memory": 8 * GIB} for number in cpus]


@pytest.mark.parametrize(
    ("cpus", "num_workers", "share"),
    [((8,), 1, 8), ((8,), 3, 2), ((6, 6), 3, 3), ((4, 2), 2, 2), ((4, 2), 1, 4), ((0, 4), 4, 1), ((2, 2), 2, 2)],
)
def test_all_workers_find_room_with_the_share_of_cores(cpus: tuple[int, ...], num_workers: int, share: int) -> None:
    """Would catch a share that fits the cluster's cores and no node's, so that the last worker is never placed."""
    assert bundle_of(needs(num_workers), nodes(*cpus)) == {"CPU": share}


def test_memory_that_is_asked_for_bounds_them_too() -> None:
    assert bundle_of(needs(3, memory_bytes=4 * 2**30), nodes(16, 2)) == {"CPU": 2, "memory": 4 * GIB}


def test_more_workers_than_there_is_room_for_are_refused_with_figures() -> None:
    """Would catch a server that waits a minute for what no node has."""
    with pytest.raises(InputError, match=r"3 workers are to have 1 CPUs.* has room for 2: its 1 nodes have 2 CPUs"):
        bundle_of(needs(3), nodes(2))
    with pytest.raises(InputError, match="has room for 0: its 0 nodes"):
        bundle_of(needs(1), [])
    gpus: list[dict[str, float]] = [{"CPU": 8.0, "GPU": 2.0}]
    for asked, room in (({"num_cpus": 3}, 2), ({}, 2), ({"num_gpus": 0.6}, 2), ({"num_cpus": 8}, 1)):
        with pytest.raises(InputError, match=rf"9 workers are to have .* each, .* has room for {room}: its 1 nodes"):
            bundle_of(needs(9, **asked), gpus)


def test_ten_tenths_of_a_gpu_are_one() -> None:
    """Would catch a worker that is refused since 1 // 0.1 is 9."""
    assert bundle_of(needs(10, num_gpus=0.1), [{"CPU": 16.0, "GPU": 1.0}]) == {"CPU": 1, "GPU": 0.1}


def test_a_worker_with_a_gpu_has_a_core_beside_it() -> None:
    totals = [*nodes(8), {"CPU": 4.0, "GPU": 2.0}]
    assert bundle_of(needs(2), totals) == {"CPU": 1, "GPU": 1}
    assert bundle_of(needs(2, num_gpus=0.5), totals) == {"CPU": 1, "GPU": 0.5}
    assert bundle_of(needs(2, num_gpus=0), totals) == {"CPU": 4}
    assert bundle_of(needs(1, num_cpus=3), totals) == {"CPU": 3, "GPU": 1}


def test_workers_of_one_node_part_its_memory() -> None:
    """Would catch workers that promise the same memory each."""
    (total,) = nodes(8)
    assert memory_share({"CPU": 2.0}, total) == 2 * GIB
    assert memory_share({"CPU": 2.0, "memory": 3 * GIB}, total) == 3 * GIB
    assert memory_share({"CPU": 8.0}, total) is None


def test_a_worker_without_a_gpu_computes_on_the_cpu() -> None:
    """Would catch one that takes the whole GPU of its node, which Ray does not hide: others have it."""
    assert device_of({"CPU": 4.0}, None) == "cpu"
    assert device_of({"CPU": 4.0}, "cpu") == "cpu"
    with pytest.raises(InputError, match=r"device 'cuda' was asked for, and a worker has no GPU of Ray's"):
        device_of({"CPU": 4.0}, "cuda")
    assert device_of({"CPU": 1.0, "GPU": 1.0}, None) is None
    assert device_of({"CPU": 1.0, "GPU": 0.5}, "cuda") == "cuda"
