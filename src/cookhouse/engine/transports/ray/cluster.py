"""Ray's cluster, as a driver of it sees it: joined or started, and asked for a place for a worker."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.util.placement_group import PlacementGroup, placement_group

from cookhouse.errors import InputError, ServiceError

LOCAL = "local"
"""In place of an address: a new cluster, of this machine alone."""
_RUNNING = "auto"
"""In place of an address: the cluster that this machine is a node of."""
_PLACE_SECONDS = 60.0
_CONNECT_SECONDS = 5.0
_LOCAL_OPTIONS: dict[str, Any] = {
    "object_store_memory": 2**28,  # it ships no files: what waits there is of large commands
    "include_dashboard": False,
    "_node_ip_address": "127.0.0.1",  # nobody else is to reach it
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a worker takes of a node."""

    num_cpus: int | None
    """None: a GPU's worker one, and others what the largest node has, shared out."""
    num_gpus: float | None
    """None: one, where the cluster has any."""
    memory_bytes: int | None
    num_workers: int = 1
    """Those that share the cluster, which a choice that was left open takes into account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    node_id: str
    name: str
    """Its address, for messages."""
    port: int
    """On which Ray answers there."""


class Cluster:
    """Joined when it is made, in the main thread: what Ray starts ends with the thread that started it."""

    def __init__(self, address: str) -> None:
        """`address` is `HOST:PORT` of a head, or one of the words above.

        Raises:
            InputError: it cannot be joined.
        """
        _check_address(address)
        try:
            ray.init(address, logging_level="warning", **(_LOCAL_OPTIONS if address == LOCAL else {}))
        except Exception as error:
            raise InputError(_why_not(address, error)) from error
        context = ray.get_runtime_context()
        self.node_id: str = context.get_node_id()
        host, _, port = context.gcs_address.rpartition(":")
        self._head = host, int(port)
        here = self.node(self.node_id)
        self._here = here.name, here.port

    def why_gone(self) -> str | None:
        """In words, what of it does not answer any more: the head, or Ray on this machine; None: both do."""
        if not answers(*self._head):
            return f"Ray's head at {':'.join(map(str, self._head))} is gone"
        return None if answers(*self._here) else "Ray on this machine is gone"

    def nodes(self) -> list[dict[str, Any]]:
        """Those that are alive, as Ray describes them."""
        return [node for node in ray.nodes() if node["Alive"]]

    def store_bytes(self) -> int:
        """Of the object store of this machine."""
        (here,) = (node for node in self.nodes() if node["NodeID"] == self.node_id)
        return int(here["Resources"].get("object_store_memory", 0))

    def node(self, node_id: str) -> Node:
        """The node of an identity.

        Raises:
            ServiceError: there is none, as where it is gone since Ray named it.
        """
        for node in ray.nodes():
            if node["NodeID"] == node_id:
                return Node(node_id=node_id, name=node["NodeManagerAddress"], port=int(node["NodeManagerPort"]))
        raise ServiceError("the node on which Ray gave a worker its place is gone; another place is needed")

    def place(self, needs: Needs) -> tuple[PlacementGroup, dict[str, float]]:
        """Reserve what a worker needs, on one node.

        Raises:
            InputError: no node has as much, or as much free.
        """
        totals = [node["Resources"] for node in self.nodes()]
        bundle = _bundle(needs, totals)
        if not any(_fits(bundle, total) for total in totals):
            raise InputError(
                f"{_asks(bundle)}, and no node of Ray's cluster has as much: {_figures(totals)}; {_WAY_OUT}"
            )
        group = placement_group([bundle])
        if not group.wait(_PLACE_SECONDS):
            free = _words(ray.available_resources())
            ray.util.remove_placement_group(group)
            raise InputError(
                f"{_asks(bundle)}, and in {_PLACE_SECONDS:g} s no node of Ray's cluster had as much free: "
                f"{_figures(totals)}, of which {free} are free; {_WAY_OUT}"
            )
        return group, bundle


_WAY_OUT = "ask for less with --worker-cpus, --worker-gpus or --worker-memory-bytes, start fewer workers, or add a node"


def answers(host: str, port: int, seconds: float = _CONNECT_SECONDS) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((host, port), seconds):
            return True
    except OSError:
        return False


def model_folders(base_models: list[str]) -> tuple[str, ...]:
    """Of the sources of base models those that are folders here."""
    return tuple(name for name in base_models if Path(name).is_dir())


def _check_address(address: str) -> None:
    if address in (LOCAL, _RUNNING):
        return
    way_out = "give HOST:PORT of the head, as `ray start --head` says it, or `auto` on a machine that is a node"
    if "://" in address:
        raise InputError(f"{address!r} is no address of a head of Ray's; {way_out}")
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise InputError(f"{address!r} is no address of a head of Ray's; {way_out}")
    if not answers(host, port):
        raise InputError(f"nobody answers at {address}; see that Ray's head runs there, and that a firewall lets us in")


def _why_not(address: str, error: Exception) -> str:
    """In one line."""
    said = " ".join(str(error).split())
    if "ersion mismatch" in said:
        return (
            f"Ray's cluster at {address} has other versions of Ray or Python than this machine: {said}; install the "
            "same everywhere"
        )
    if address == _RUNNING:
        return (
            f"this machine is no node of a cluster of Ray's; start Ray here with `ray start`, or give the head's {said}"
        )
    return (
        f"Ray's cluster at {address} cannot be joined: {said}; this machine must be a node of it, which "
        f"`ray start --address={address} --num-cpus=0` makes it"
    )


def _bundle(needs: Needs, totals: list[dict[str, float]]) -> dict[str, float]:
    num_gpus = needs.num_gpus
    if num_gpus is None:
        num_gpus = 1 if any(total.get("GPU", 0) >= 1 for total in totals) else 0
    num_cpus = needs.num_cpus
    if num_cpus is None:
        cpus = [int(total.get("CPU", 0)) for total in totals]
        num_cpus = 1 if num_gpus else max(1, min(max(cpus), sum(cpus) // needs.num_workers))
    bundle = {"CPU": float(num_cpus)}
    if num_gpus:
        bundle["GPU"] = float(num_gpus)
    if needs.memory_bytes is not None:
        bundle["memory"] = float(needs.memory_bytes)
    return bundle


def _fits(bundle: dict[str, float], total: dict[str, float]) -> bool:
    return all(total.get(name, 0) >= amount for name, amount in bundle.items())


def _asks(bundle: dict[str, float]) -> str:
    return f"a worker is to have {_words(bundle)}"


def _figures(totals: list[dict[str, float]]) -> str:
    return f"its {len(totals)} nodes have {'; '.join(map(_words, totals))}"


def _words(amounts: dict[str, float]) -> str:
    words = [f"{amounts.get('CPU', 0):g} CPUs", f"{amounts.get('GPU', 0):g} GPUs"]
    if "memory" in amounts:
        words.append(f"{amounts['memory'] / 2**30:.1f} GiB")
    return ", ".join(words)
