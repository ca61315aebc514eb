"""A node that is gone, and Ray's head: told soon, once, and what comes next is another worker."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cookhouse.engine.transports.ray.addresses import LOCAL
from cookhouse.engine.transports.ray.workers import RayWorkers
from tests.engine.transports.calls import is_up, reason, run, told
from tests.engine.transports.ray.clusters import FAKE_DRIVER, TwoNodes, groups_of, is_running, pid_of, running
from tests.waiting import next_line, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]


def test_a_killed_node_is_told_and_another_takes_its_workers(ray_cluster: TwoNodes, tmp_path: Path) -> None:
    """Would catch a server that waits for a machine that was switched off."""

    async def test() -> None:
        lost, spare = (ray_cluster.add_node(num_cpus=8) for _ in range(2))
        nodes = [lost, spare]
        try:
            with ray_cluster.workers({"num_cpus": 6}) as workers:
                async with running(workers, tmp_path) as first:
                    pid = await pid_of(first)
                    (node,) = [node for node in nodes if is_of(pid, node)]
                    nodes.remove(node)
                    ray_cluster.ray.remove_node(node, allow_graceful=False)
                    said = await reason(first)
                    assert "node" in said
                    async with running(workers, tmp_path) as second:
                        assert is_of(await pid_of(second), nodes[0])
        finally:
            for node in nodes:
                ray_cluster.ray.remove_node(node)

    run(test())


def is_of(pid: int, node: object) -> bool:
    """Whether a process was started by the raylet of a node."""
    (raylet,) = node.all_processes["raylet"]  # type: ignore[attr-defined]
    return bool(parent_of(pid) == raylet.process.pid)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def cluster_below(pid: int) -> dict[int, str]:
    """What a driver has started of a cluster, by its number. Ray's agents, which end a minute later, are left out."""
    return {pid: name for pid, name in below(pid) if name.endswith(("gcs_server", "raylet")) or "WorkerActor" in name}


def below(pid: int) -> Iterator[tuple[int, str]]:
    """The processes that one has started, they and theirs, with what each runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if parent_of(int(folder.name)) == pid:
                yield int(folder.name), (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
                yield from below(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue


@pytest.mark.parametrize("victim", ["gcs_server", "raylet"])
def test_the_head_of_a_cluster_of_its_own_is_started_again(tmp_path: Path, victim: str) -> None:
    """Would catch a server that is left without an engine, and processes of a cluster that nobody needs."""

    async def test() -> None:
        with RayWorkers(LOCAL, command=FAKE_DRIVER) as workers:
            async with running(workers, tmp_path) as first:
                await told(first, is_up)
                assert workers.pid is not None
                started = cluster_below(workers.pid)
                (head,) = [pid for pid, program in started.items() if program.endswith(victim)]
                os.kill(head, signal.SIGKILL)
                await reason(first)
                async with running(workers, tmp_path) as second:
                    await pid_of(second)
                    wait_until(lambda: not any(map(is_running, started)))
                    again = cluster_below(workers.pid)
        wait_until(lambda: not any(map(is_running, again)))

    run(test())


def test_what_a_killed_driver_started_ends(tmp_path: Path) -> None:
    """Would catch a cluster that runs on with nobody to end it."""

    async def test() -> None:
        with RayWorkers(LOCAL, command=FAKE_DRIVER) as workers:
            async with running(workers, tmp_path) as worker:
                await told(worker, is_up)
                assert workers.pid is not None
                started = cluster_below(workers.pid)
                assert any(program.endswith("raylet") for program in started.values())
                os.kill(workers.pid, signal.SIGKILL)
                wait_until(lambda: not any(map(is_running, started)))

    run(test())


def test_a_killed_server_leaves_nothing_on_a_cluster_that_it_joined(ray_cluster: TwoNodes, tmp_path: Path) -> None:
    """Would catch cores that stay reserved, and tenants' weights that stay on a node."""
    words = [sys.executable, "-m", "tests.engine.transports.ray.holder", ray_cluster.address, str(tmp_path)]
    before = groups_of(ray_cluster.address)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        actor, driver = map(int, next_line(server).split())
        (folder,) = own_folders(actor)
        for index in range(20_000):  # so that it takes a while to delete them
            (folder / str(index)).touch()
        assert len(groups_of(ray_cluster.address)) == len(before) + 1
        server.kill()
    wait_until(lambda: not is_running(actor) and not is_running(driver))
    assert not folder.exists()
    assert groups_of(ray_cluster.address) == before


def own_folders(pid: int) -> list[Path]:
    """Folders of a worker that sees none of the server's: it holds them open."""
    base = Path(tempfile.gettempdir()) / f"cookhouse-{os.getuid()}"
    held = (descriptor.resolve() for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    return [path for path in held if path.parent == base]


def test_a_head_that_comes_back_is_joined_again(tmp_path: Path) -> None:
    """Would catch a driver that holds on to a head that is gone."""
    from ray.cluster_utils import Cluster

    async def test() -> None:
        head = {"num_cpus": 1, "object_store_memory": 2**27, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        port = int(cluster.address.rpartition(":")[2])
        with RayWorkers(cluster.address, command=FAKE_DRIVER) as workers:
            async with running(workers, tmp_path) as first:
                await told(first, is_up)
                cluster.shutdown()
                await reason(first)
                cluster = Cluster(initialize_head=True, head_node_args={**head, "gcs_server_port": port})
                try:
                    async with running(workers, tmp_path) as second:
                        await pid_of(second)
                finally:
                    cluster.shutdown()

    run(test())
