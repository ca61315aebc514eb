"""A cluster of Ray's on this machine, whose nodes are killed under the workers of a server: a head without cores, and
nodes of one core each.
"""

import os
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

_STORE_BYTES = 160 * 2**20
_ACTOR = b"WorkerActor"
_LEFT_SECONDS = 60.0
"""Until a worker is taken for forgotten."""


class Nodes:
    """Runs while a `with` lasts. Needs Ray."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._cluster: Any = None

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        from ray.cluster_utils import Cluster

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
            self._cluster = Cluster(initialize_head=True, head_node_args=head)
            for _ in range(self._number):
                self._add()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.shutdown()

    def actors(self) -> list[int]:
        """Ids of the processes of workers, the oldest first."""
        return sorted(pid for node in self._cluster.worker_nodes for pid in _actors_below(_raylet(node)))

    def kill(self) -> bool:
        """Kill the first node that has a worker, and add another; False: none has one."""
        for node in sorted(self._cluster.worker_nodes, key=_raylet):
            if _actors_below(_raylet(node)):
                self._cluster.remove_node(node, allow_graceful=False)
                self._add()
                return True
        return False

    def left(self) -> list[str]:
        """Workers that are still there some time after their server has ended."""
        deadline = time.monotonic() + _LEFT_SECONDS
        while (found := self.actors()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return [f"worker {pid} on a node" for pid in found]

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
