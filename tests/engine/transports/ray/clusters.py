"""A cluster of Ray's with two nodes on this machine, and workers on either."""

import fcntl
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.engine.contract import Done, Worker
from cookhouse.engine.transports.ray.workers import RayWorkers
from tests.engine.transports.calls import answer, do, options

ENGINE_DRIVER = (sys.executable, "-m", "tests.engine.transports.ray.engine_driver")
FAKE_DRIVER = (sys.executable, "-m", "tests.engine.transports.ray.fake_driver")
STORE_BYTES = 160 * 2**20
_LITTLE, _MUCH = 2**30, 2**33
"""Memory that nodes claim to have: for Ray a number."""
HERE = {"num_cpus": 1, "memory_bytes": _LITTLE + 1}
"""Fits the head alone: the node that drivers are on."""
ELSEWHERE = {"num_cpus": 3}
"""Fits the second node alone."""


@dataclass
class TwoNodes:
    ray: Any
    second: Any

    @property
    def address(self) -> str:
        return str(self.ray.address)

    def workers(self, needs: dict[str, int], command: tuple[str, ...] = FAKE_DRIVER) -> RayWorkers:
        return RayWorkers(self.address, command=command, **needs)

    def add_node(self, **options: Any) -> Any:
        return self.ray.add_node(object_store_memory=STORE_BYTES, **options)


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 2, "memory": _MUCH, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield TwoNodes(cluster, cluster.add_node(num_cpus=4, memory=_LITTLE, object_store_memory=STORE_BYTES))
        finally:
            cluster.shutdown()


@asynccontextmanager
async def running(workers: RayWorkers, folder: Path) -> AsyncIterator[Worker]:
    """A worker that has been told to begin, ended in the end."""
    worker = workers(options(folder))
    try:
        yield worker
    finally:
        await worker.close(0)


def groups_of(address: str) -> list[str]:
    """Placement groups that a cluster has."""
    program = (
        "import sys, ray; from ray.util import placement_group_table; ray.init(sys.argv[1], logging_level='error'); "
        "print(*(name for name, group in placement_group_table().items() if group['state'] != 'REMOVED'))"
    )
    words = [sys.executable, "-W", "ignore", "-c", program, address]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def free_folders() -> set[Path]:
    """Folders of workers on nodes that no process holds: of such as were killed, before the next one starts there."""
    base = Path(tempfile.gettempdir()) / f"cookhouse-{os.getuid()}"
    return {folder for folder in base.glob("*") if is_free(folder)}


def is_free(folder: Path) -> bool:
    with suppress(FileNotFoundError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
    return False


async def pid_of(worker: Worker) -> int:
    done = await answer(worker, do("pid", "pid"))
    assert isinstance(done, Done)
    assert isinstance(done.output, bytes)
    return int(done.output)


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
