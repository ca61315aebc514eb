"""What cannot be used of Ray is refused in one line, which says what to do."""

import asyncio
import json
import os
import socket
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cookhouse.engine.contract import Lost
from cookhouse.engine.transports.ray.workers import RayWorkers
from cookhouse.version import __version__
from tests.engine.transports.calls import is_lost, told
from tests.engine.transports.ray.clusters import FAKE_DRIVER, TwoNodes, running

MODULES = Path(__file__).parents[4] / "src" / "cookhouse"


def refusal(workers: RayWorkers, folder: Path) -> str:
    """Why no worker can be made, which is the operator's to put right."""

    async def lost() -> Lost:
        async with running(workers, folder) as worker:
            event = (await told(worker, is_lost))[-1]
            assert isinstance(event, Lost)
            return event

    with workers:
        event = asyncio.run(lost())
    assert event.failure is not None
    assert (event.failure.blame, event.failure.kind) == ("user", "input"), event.failure
    assert "\n" not in event.failure.message
    return event.failure.message


def test_without_ray_it_says_which_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    said = refusal(RayWorkers(command=FAKE_DRIVER), tmp_path / "state")
    assert said.startswith("--ray needs the package ray, which is not installed: ")
    assert "[ray]" in said


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.ray
@pytest.mark.usefixtures("ray_is_here")
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nonsense", "'nonsense' is no address of a head of Ray's; give HOST:PORT of the head"),
        ("ray://head:10001", "is no address of a head of Ray's; give HOST:PORT"),
        ("head:port", "is no address of a head of Ray's; give HOST:PORT"),
        ("127.0.0.1:{port}", "nobody answers at 127.0.0.1:{port}; see that Ray's head runs there"),
    ],
)
def test_addresses_where_no_head_is_are_refused(address: str, why: str, tmp_path: Path) -> None:
    port = closed_port()
    workers = RayWorkers(address.format(port=port), command=FAKE_DRIVER)
    assert why.format(port=port) in refusal(workers, tmp_path)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_is_here")
def test_something_else_that_listens_there_is_refused_in_bounded_time(tmp_path: Path) -> None:
    """Would catch a server that waits for ever for a port that is another program's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept_all, args=(listener,), daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert f"Ray's cluster at {address} cannot be joined" in refusal(
            RayWorkers(address, command=FAKE_DRIVER), tmp_path
        )


def accept_all(listener: socket.socket) -> None:
    held = []
    try:
        while True:
            held.append(listener.accept()[0])
    except OSError:
        for connection in held:
            connection.close()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_is_here")
@pytest.mark.parametrize(
    ("needs", "asked"),
    [
        ({"num_gpus": 2}, "a worker is to have 1 CPUs, 2 GPUs"),
        ({"num_cpus": 64}, "a worker is to have 64 CPUs, 0 GPUs"),
        ({"num_cpus": 1, "memory_bytes": 2**50}, "a worker is to have 1 CPUs, 0 GPUs, 1048576.0 GiB"),
    ],
)
def test_more_than_any_node_has_is_refused_with_figures(
    ray_cluster: TwoNodes, tmp_path: Path, needs: Any, asked: str
) -> None:
    said = refusal(ray_cluster.workers(needs), tmp_path)
    assert said.startswith(f"{asked}, and no node of Ray's cluster has as much: its 2 nodes have ")
    assert "2 CPUs, 0 GPUs, 8.0 GiB; 4 CPUs, 0 GPUs, 1.0 GiB" in said or "4 CPUs, 0 GPUs, 1.0 GiB; 2 CPUs" in said
    assert "--worker-cpus, --worker-gpus" in said


@pytest.mark.ray
@pytest.mark.usefixtures("ray_is_here")
def test_a_cluster_of_another_version_is_refused(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "object_store_memory": 2**27, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        client = import_module("ray._raylet").GcsClient(address=cluster.address)
        key, namespace = b"CLUSTER_METADATA", b"cluster"
        metadata = json.loads(client.internal_kv_get(key, namespace))
        metadata["ray_version"] = "2.3.0"
        client.internal_kv_put(key, json.dumps(metadata).encode(), True, namespace)
        said = refusal(RayWorkers(cluster.address, command=FAKE_DRIVER), tmp_path)
    finally:
        cluster.shutdown()
    assert "has other versions of Ray or Python than this machine" in said
    assert "Ray: 2.3.0" in said


def a_package(folder: Path, **files: str) -> Path:
    """Our package as a node may have it, with some of its modules in another text."""
    package = folder / "cookhouse"
    package.mkdir(parents=True)
    for path in MODULES.iterdir():
        if path.stem not in files:
            (package / path.name).symlink_to(path)
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    return folder


@pytest.mark.ray
@pytest.mark.usefixtures("ray_is_here")
@pytest.mark.parametrize(
    ("files", "why"),
    [
        (
            {"__init__": "raise ModuleNotFoundError(\"No module named 'cookhouse'\", name='cookhouse')\n"},
            f"has no cookhouse: install it there, version {__version__}",
        ),
        (
            {"version": "__version__ = '0.0.1'\n"},
            f"has cookhouse 0.0.1, and this machine cookhouse {__version__}; install the same on both",
        ),
    ],
    ids=["none", "another"],
)
def test_a_node_without_the_package_or_with_another_version_is_named(
    ray_cluster: TwoNodes, tmp_path: Path, files: dict[str, str], why: str
) -> None:
    path = a_package(tmp_path / "packages", **files)
    node = ray_cluster.add_node(num_cpus=8, env_vars={"PYTHONPATH": str(path)})
    try:
        said = refusal(ray_cluster.workers({"num_cpus": 6}), tmp_path / "state")
    finally:
        ray_cluster.ray.remove_node(node)
    assert said.startswith("node ")
    assert why in said
