"""One worker, as the driver has it: an actor somewhere, what goes to it and what comes back."""

import contextlib
import platform
import queue
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cookhouse.engine.contract import Command, Event, Fetch, Load, Lost, Up, WorkerOptions
from cookhouse.engine.transports.child_process import MakeRunning, Tell
from cookhouse.engine.transports.messages import decode_all, encode
from cookhouse.engine.transports.ray.actor import Place, WorkerActor
from cookhouse.engine.transports.ray.cluster import Cluster, Needs, Node, answers, model_folders
from cookhouse.engine.transports.ray.own_tokenizers import with_own_tokenizers
from cookhouse.engine.transports.ray.shelf import Shelf
from cookhouse.engine.transports.ray.shipping import Shipping
from cookhouse.errors import InputError, ServiceError
from cookhouse.version import __version__

_START_SECONDS = 120.0
_MAX_CALLS = 8
"""Of an actor's methods at a time: events, commands, and parts of files."""
_WATCH_SECONDS, _MAX_MISSES = 1.0, 3
"""How often a node is asked whether it is there, and how often in a row it may miss that."""
_MAX_COMMANDS, _MAX_SAID = 64, 300
"""Commands sent at a time; letters of what Ray says."""


class Relay:
    """Implements `Running`."""

    def __init__(
        self,
        cluster: Cluster,
        needs: Needs,
        shelf: Shelf,
        options: WorkerOptions,
        engine_options: Mapping[str, Any],
        *,
        load: Callable[[], None],
        make: MakeRunning,
        tell: Tell,
        doubt: Callable[[], object],
    ) -> None:
        """`doubt` is called before a loss is told that may be the cluster's."""
        self._cluster = cluster
        self._needs = needs
        self._shelf = shelf
        self._options = options
        self._engine_options = engine_options
        self._load = load
        self._make = make
        self._tell = tell
        self._doubt = doubt
        self._outgoing: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._num_sent = 0
        self._is_up = threading.Event()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._is_lost = False
        self._actor: Any = None
        self._node: Node | None = None
        self._shipping: Shipping | None = None

    def submit(self, commands: Sequence[Command]) -> None:
        """See `Running`."""
        for command in commands:
            self._outgoing.put(command)

    def stop(self) -> None:
        """See `Running`."""
        self._outgoing.put(None)

    def end(self) -> None:
        """End the actor at once, whatever it does. From any thread."""
        self._is_over.set()
        if self._actor is not None:
            with contextlib.suppress(RayError):  # it has ended
                self._actor.leave.remote()
                ray.kill(self._actor)

    def run(self) -> None:
        """Find a place, start the actor there, and carry events until it ends.

        Raises:
            CookhouseError: it cannot be started there.
        """
        group, bundle = self._cluster.place(self._needs)
        try:
            self._start(group, bundle)
            if self._is_over.is_set():  # while there was no actor to be ended
                return
            for work in (self._send_all, self._watch):
                threading.Thread(target=work, daemon=True).start()
            self._read()
        finally:
            self.end()
            with contextlib.suppress(RayError):
                ray.util.remove_placement_group(group)

    def lose(self, reason: str) -> None:
        """Tell of its end, unless that has been told."""
        with self._lock:
            is_known, self._is_lost = self._is_lost or self._is_over.is_set(), True
        if not is_known:
            self._tell([Lost(worker=self._options.worker, reason=reason)])

    def _start(self, group: PlacementGroup, bundle: Mapping[str, float]) -> None:
        (node_id,) = ray.util.placement_group_table(group)["bundles_to_node_id"].values()
        node = self._node = self._cluster.node(node_id)
        self._actor = (
            ray.remote(WorkerActor)
            .options(
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                memory=bundle.get("memory"),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=_MAX_CALLS,
            )
            .remote(max(1, int(bundle["CPU"])), self._load, self._make)
        )
        _check_versions(self._actor, node)
        is_here = node_id == self._cluster.node_id
        if not is_here:
            self._shipping = Shipping(
                self._actor, self._shelf, self._options.worker, tell=self._tell, submit=self.submit
            )
        place = Place(
            node=node.name,
            server="" if is_here else f"{socket.gethostname()} {self._cluster.node_id} {self._options.folder}",
            working_folder=str(Path.cwd()),
            model_folders=() if is_here else model_folders(self._engine_options.get("base_models", [])),
        )
        options = {**asdict(self._options), "folder": str(self._options.folder)}
        frame = b"".join(encode((options, dict(self._engine_options))))
        ray.get(self._actor.begin.remote(frame, tuple(place)))

    def _read(self) -> None:
        try:
            for reference in self._actor.events.options(num_returns="streaming").remote():
                self._take(ray.get(reference))
            if self._shipping is not None:
                self._shipping.close()
        except RayError as error:
            assert self._node is not None
            self._doubt()
            is_there = answers(self._node.name, self._node.port)
            what = "its actor died" if is_there else "its node is gone"
            self.lose(f"{what}, node {self._node.name}: {_said(error)}")

    def _take(self, frames: bytes) -> None:
        for event in decode_all(frames):
            told: Event | None = with_own_tokenizers(event)
            if isinstance(told, Lost):
                self._is_lost = True
            elif self._shipping is not None and told is not None:
                told = self._shipping.inward(told)
            if told is not None:
                self._tell([told])
            if isinstance(event, Up):
                self._is_up.set()

    def _send_all(self) -> None:
        try:
            is_last = False
            while not is_last and not self._is_over.is_set():
                commands = self._take_outgoing()
                is_last = commands[-1] is None
                frames: list[memoryview] = []
                for command in commands:
                    if self._shipping is not None and isinstance(command, Load | Fetch):
                        self._send(frames)  # what came before need not wait for files
                        frames = []
                        self._is_up.wait()  # its folder is emptied before
                    if self._shipping is not None and command is not None:
                        command = self._shipping.outward(command)
                    frames += encode(command)
                self._send(frames)
        except RayError as error:
            self._doubt()
            self.lose(f"commands cannot be sent: {_said(error)}")

    def _send(self, frames: Sequence[memoryview]) -> None:
        if frames:
            self._actor.submit.remote(self._num_sent, b"".join(frames))
            self._num_sent += 1

    def _take_outgoing(self) -> list[Command | None]:
        """What is there, up to the end; waits for at least one."""
        taken = [self._outgoing.get()]
        with contextlib.suppress(queue.Empty):
            while taken[-1] is not None and len(taken) < _MAX_COMMANDS:
                taken.append(self._outgoing.get_nowait())
        return taken

    def _watch(self) -> None:
        """Notice a node that is gone before Ray does, which may take half a minute."""
        assert self._node is not None
        misses = 0
        while misses < _MAX_MISSES:
            if self._is_over.wait(_WATCH_SECONDS):
                return
            misses = 0 if answers(self._node.name, self._node.port) else misses + 1
        self.lose(f"its node {self._node.name} does not answer")


def _check_versions(actor: Any, node: Node) -> None:
    """Wait until an actor runs.

    Raises:
        InputError: what it needs is not installed there, or another version of it.
        ServiceError: it does not start.
    """
    try:
        theirs = ray.get(actor.versions.remote(), timeout=_START_SECONDS)
    except GetTimeoutError as error:
        raise ServiceError(
            f"no actor starts on node {node.name} within {_START_SECONDS:g} s; see Ray's logs"
        ) from error
    except RayError as error:
        said = str(error)
        if "No module named 'cookhouse" in said:
            raise InputError(
                f"node {node.name} has no cookhouse: install it there, version {__version__}, for the Python that Ray "
                "runs with"
            ) from error
        raise ServiceError(f"no actor starts on node {node.name}: {_said(error)}") from error
    for name, own, their in zip(("cookhouse", "Python"), (__version__, platform.python_version()), theirs, strict=True):
        if own != their:
            raise InputError(
                f"node {node.name} has {name} {their}, and this machine {name} {own}; install the same on both"
            )


def _said(error: Exception) -> str:
    """What Ray says, in one line: the cause, where it names one."""
    said = " ".join(str(error).split())
    _, found, cause = said.partition("The actor is dead because ")
    return (cause if found else said)[:_MAX_SAID] or type(error).__name__
