"""A cluster of Ray's on this machine, whose nodes are killed under the workers of a server: a head without cores, and
nodes of one core each.
"""

import os
import signal
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from tests.engine.transports.ray.clusters import free_folders, groups_of

_STORE_BYTES = 160 * 2**20
_ACTOR = b"WorkerActor"
_LEFT_SECONDS = 60.0
"""Until a worker is taken for forgotten."""


class Nodes:
    """Runs while a `with` lasts. Needs Ray."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._cluster: Any = None
        self._folders = free_folders()
        """Left by others, before."""

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()

    def actors(self) -> list[int]:
        """Ids of the processes of workers, the oldest first."""
        return sorted(pid for node in self._cluster.worker_nodes for pid in _actors_below(_raylet(node)))

    def kill(self, what: Literal["node", "head"]) -> bool:
        """Kill the head, or the first node that has a worker, and add another; False: none has one."""
        return self.kill_head() if what == "head" else self.kill_node()

    def kill_node(self) -> bool:
        for node in sorted(self._cluster.worker_nodes, key=_raylet):
            if _actors_below(_raylet(node)):
                self._cluster.remove_node(node, allow_graceful=False)
                self._add()
                return True
        return False

    def kill_head(self) -> bool:
        """Kill the head's store, and with it the cluster; then start another at its address, with as many nodes."""
        (store,) = self._cluster.head_node.all_processes["gcs_server"]
        os.kill(store.process.pid, signal.SIGKILL)
        port = int(self.address.rpartition(":")[2])
        self._cluster.shutdown()
        self._start(port)
        return True

    def left(self) -> list[str]:
        """What is still there some time after the server has ended: workers, their places, and their files."""
        deadline = time.monotonic() + _LEFT_SECONDS
        while (found := self._left_now()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _left_now(self) -> list[str]:
        found = [f"worker {pid} on a node" for pid in self.actors()]
        found += [f"files of a worker in {folder}" for folder in free_folders() - self._folders]
        return found or [f"placement group {name}" for name in groups_of(self.address)]

    def _start(self, port: int | None = None) -> None:
        from ray.cluster_utils import Cluster

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
            head |= {} if port is None else {"gcs_server_port": port}
            self._cluster = Cluster(initialize_head=True, head_node_args=head)
            for _ in range(self._number):
                self._add()

    def _add(self) -> None:
        self._cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)


def _raylet(node: Any) -> int:
    (raylet,) = node.all_processes["raylet"]
    return int(raylet.process.pid)


def _actors_below(raylet: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == raylet and _ACTOR in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
