"""Ray's cluster, joined or started by a driver, and asked for a place for a worker."""

import ctypes
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import ray
from ray._raylet import GcsClient  # to list nodes in public takes a node, or a dashboard
from ray.util.placement_group import PlacementGroup, placement_group

from cookhouse.engine.processors import allowed_cores, num_within_quota
from cookhouse.engine.transports.ray.addresses import LOCAL, RUNNING, answers, check_address, why_not_joined
from cookhouse.engine.transports.ray.bundles import (
    WAY_OUT,
    Amounts,
    Needs,
    asks,
    bundle_of,
    check_fits,
    figures,
    in_words,
)
from cookhouse.engine.transports.ray.worker_files import OwnFolder
from cookhouse.errors import InputError, ServiceError

_ALIVE = 0
_SET_DEATH_SIGNAL = 1
"""Of prctl."""
_START_SECONDS, _POLL_SECONDS, _END_SECONDS = 40.0, 0.2, 5.0
_log = logging.getLogger(__name__)
SHARED = ""
"""In place of a worker's name: all of those that the cluster is shared by."""
_NODES_SECONDS, _LOOK_SECONDS = 30.0, 0.5
"""For nodes to come up in a cluster that was joined: it may have just been started, as after the end of its head."""
_PLACE_SECONDS = 60.0
_TRY_SECONDS = 3.0
"""For a place that seems to be free."""
_MAX_FOLDER_LENGTH = 40
"""Of a socket's path Linux takes 107 characters, and Ray adds 64."""


class OwnNode:
    """A node without cores and GPUs. It ends with this process, however that ends."""

    def __init__(self, address: str) -> None:
        """
        Raises:
            InputError: Ray does not start here.
        """
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}", "--block"]
        self._process = subprocess.Popen(
            [*words, "--num-cpus=0", "--num-gpus=0", "--disable-usage-stats"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=_ends_with_parent(),
        )
        deadline = time.monotonic() + _START_SECONDS
        while not is_node(address):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise InputError(why_not_joined(address, "no node of it starts on this machine; the log says why"))
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """Leave the cluster."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_node(address: str) -> bool:
    """True if this machine is a node of the cluster whose head is there."""
    nodes = GcsClient(address=address).get_all_node_info().values()
    return any(node.state == _ALIVE and _is_here(node.node_manager_address) for node in nodes)


def _is_here(host: str) -> bool:
    """True if an address is one of this machine's: only those can be listened at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            return False
    return True


def _ends_with_parent() -> Callable[[], object]:
    """To be called in a child: it is killed with the thread that started it, and Ray's processes with it."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


_T = TypeVar("_T")
_LOCAL_OPTIONS: dict[str, Any] = {
    "object_store_memory": 2**28,  # it ships no files: what waits there is of large commands
    "include_dashboard": False,
    "_node_ip_address": "127.0.0.1",  # nobody else is to reach it
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    node_id: str
    name: str
    """Its address, for messages."""
    port: int
    """On which Ray answers there."""
    total: Mapping[str, float]
    """Of its resources, by Ray's names for them."""


class Cluster:
    """Joined when it is made, in the main thread: what Ray starts ends with the thread that started it."""

    def __init__(
        self,
        address: str,
        needs: Needs,
        bundles: Mapping[str, Amounts],
        note: Callable[[str, Amounts], object],
    ) -> None:
        """`address` is `HOST:PORT` of a head, or one of the words of `addresses`; `needs` are those of each worker.
        `bundles` have been chosen by worker, and under `SHARED`, and stay; `note` is given others.

        Raises:
            InputError: it cannot be joined.
        """
        check_address(address)
        self._own_node: OwnNode | None = None
        self._wait_to = time.monotonic() + (0.0 if address == LOCAL else _NODES_SECONDS)
        self._own_folder: OwnFolder | None = OwnFolder() if address == LOCAL else None
        try:
            if address not in (LOCAL, RUNNING) and not is_node(address):
                self._own_node = OwnNode(address)
            ray.init(address, logging_level="warning", **self._options())
        except InputError:
            raise
        except Exception as error:
            raise InputError(why_not_joined(address, str(error))) from error
        context = ray.get_runtime_context()
        self.node_id: str = context.get_node_id()
        host, _, port = context.gcs_address.rpartition(":")
        self._head = host, int(port)
        here = self.node(self.node_id)
        self._here = here.name, here.port
        self._needs = needs
        self._lock = threading.Lock()
        self._bundles = {name: dict(bundle) for name, bundle in bundles.items()}
        self._note = note

    def leave(self) -> None:
        """Leave it, or end it where it was started for us. It may hang where the head does."""
        ray.shutdown()
        if self._own_node is not None:
            self._own_node.end()
        if self._own_folder is not None:
            self._own_folder.delete()

    def _options(self) -> dict[str, Any]:
        """Of a cluster that is started for us; of another none."""
        if self._own_folder is None:
            return {}
        path = str(self._own_folder.path)
        # Ray's own folder grows with each cluster; sockets below a folder of a long name cannot be made.
        folder = {"_temp_dir": path} if len(path) <= _MAX_FOLDER_LENGTH else {}
        return {**_LOCAL_OPTIONS, **folder, "num_cpus": num_within_quota(len(allowed_cores()))}

    def why_gone(self) -> str | None:
        """In words, what of it does not answer any more: the head, or Ray on this machine; None: both do."""
        if not answers(*self._head):
            return f"Ray's head at {':'.join(map(str, self._head))} is gone"
        return None if answers(*self._here) else "Ray on this machine is gone"

    def store_bytes(self) -> int:
        """Of the object store of this machine."""
        return int(self.node(self.node_id).total.get("object_store_memory", 0))

    def node(self, node_id: str) -> Node:
        """The node of an identity.

        Raises:
            ServiceError: there is none, as where it is gone since Ray named it.
        """
        for node in ray.nodes():
            if node["NodeID"] == node_id:
                return Node(
                    node_id=node_id,
                    name=node["NodeManagerAddress"],
                    port=int(node["NodeManagerPort"]),
                    total=node["Resources"],
                )
        raise ServiceError("the node on which Ray gave a worker its place is gone; another place is needed")

    def place(self, worker: str, index: int) -> tuple[PlacementGroup, dict[str, float]]:
        """Reserve on one node what a worker needs: what it had, if it had any. One that was added to those that share
        the cluster, whose number is a sign of it, takes the cores that are free, if it was left open how many.

        Raises:
            InputError: no node has as much, or as much free.
        """
        with self._lock:
            shared = self._bundles.get(SHARED) or self._fitted(partial(bundle_of, self._needs))
            self._keep(SHARED, shared)
        bundle = self._bundles.get(worker, shared)
        self._fitted(partial(check_fits, bundle))
        totals = _totals()
        is_open = self._needs.num_cpus is None and "GPU" not in bundle
        if is_open and index >= self._needs.num_workers and worker not in self._bundles:
            group, bundle = _place_in_rest(bundle, totals)
            self._keep(worker, bundle)
            return group, bundle
        group = _reserve(bundle, _PLACE_SECONDS)
        if group is None:
            raise InputError(
                f"{asks(bundle)}, and in {_PLACE_SECONDS:g} s no node of Ray's cluster had as much free: "
                f"{figures(totals)}, of which {in_words(ray.available_resources())} are free; {WAY_OUT}"
            )
        return group, bundle

    def _fitted(self, fit: Callable[[Sequence[Amounts]], _T]) -> _T:
        """Fit to the nodes that there are, of which some may be coming up still.

        Raises:
            InputError: nothing does, for what `fit` says.
        """
        is_told = False
        while True:
            try:
                return fit(_totals())
            except InputError as error:
                seconds = self._wait_to - time.monotonic()
                if seconds <= 0:
                    raise
                if not is_told:
                    _log.warning("waiting %.0f s for more nodes of Ray's cluster: %s", seconds, error)
                is_told = True
            time.sleep(_LOOK_SECONDS)

    def _keep(self, name: str, bundle: dict[str, float]) -> None:
        """Whoever is lost comes back as it was, whatever nodes there are then: its size shows in what it computes."""
        if name not in self._bundles:
            self._bundles[name] = bundle
            self._note(name, bundle)


def _totals() -> list[Amounts]:
    """Resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _place_in_rest(
    bundle: Mapping[str, float], totals: list[Mapping[str, float]]
) -> tuple[PlacementGroup, dict[str, float]]:
    """A place with as many cores as a bundle has, or half, and so on: those that are free may be of several nodes."""
    num_cpus = int(min(bundle["CPU"], ray.available_resources().get("CPU", 0)))
    while num_cpus:
        smaller = {**bundle, "CPU": float(num_cpus)}
        group = _reserve(smaller, _TRY_SECONDS)
        if group is not None:
            return group, smaller
        num_cpus //= 2
    least = in_words({**bundle, "CPU": 1.0})
    raise InputError(
        f"a worker that is added takes {least} at least, and no node of Ray's cluster has as much free: "
        f"{figures(totals)}; drain a worker, or add a node"
    )


def _reserve(bundle: dict[str, float], seconds: float) -> PlacementGroup | None:
    """A place on one node; None: there is none within that time."""
    group = placement_group([bundle])
    if group.wait(seconds):
        return group
    ray.util.remove_placement_group(group)
    return None
