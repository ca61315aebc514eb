"""One worker, as the driver has it: an actor somewhere, what goes to it and what comes back.

`end` is the one way to end, from whatever thread. It tells why, and wakes the others:

run      finds a place, starts the actor, and reads its events until the last one; then gives the place back
sender   sends commands, in the order of `command_order`
carriers send files ahead of a command
watcher  looks after the node and what was sent; after the end it ends the actor
"""

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup

from cookhouse.engine.contract import Command, Event, Lost, Up, WorkerOptions
from cookhouse.engine.transports.child_process import MakeRunning, Tell
from cookhouse.engine.transports.messages import decode_all, encode
from cookhouse.engine.transports.ray.actor import Place
from cookhouse.engine.transports.ray.addresses import answers
from cookhouse.engine.transports.ray.bundles import device_of, memory_share
from cookhouse.engine.transports.ray.cluster import Cluster, Node
from cookhouse.engine.transports.ray.command_order import CommandOrder
from cookhouse.engine.transports.ray.object_cache import ObjectCache
from cookhouse.engine.transports.ray.own_tokenizers import with_own_tokenizers
from cookhouse.engine.transports.ray.ray_errors import said
from cookhouse.engine.transports.ray.shipping import Shipping
from cookhouse.engine.transports.ray.starting import begin, make_actor

_log = logging.getLogger(__name__)
_WATCH_SECONDS, _MAX_MISSES = 1.0, 3
"""How often a node is asked whether it is there, and how often in a row it may miss that."""
_LEAVE_SECONDS = 5.0
"""For an actor to delete its files and end; then it is killed."""
_MAX_COMMANDS, _MAX_CARRIERS = 64, 3
"""Sent at a time; threads that send files."""


class _Arrived(NamedTuple):
    """Of a command whose files have been sent, or cannot be."""

    command: Command


class Relay:
    """Implements `Running`."""

    def __init__(
        self,
        cluster: Cluster,
        objects: ObjectCache,
        options: WorkerOptions,
        engine_options: Mapping[str, Any],
        *,
        load: Callable[[], None],
        make: MakeRunning,
        tell: Tell,
        check_cluster: Callable[[], object],
    ) -> None:
        """`check_cluster` is called before a loss is told that may be the cluster's."""
        self._cluster = cluster
        self._objects = objects
        self._options = options
        self._engine_options = engine_options
        self._load = load
        self._make = make
        self._tell = tell
        self._check_cluster = check_cluster
        self._outgoing: queue.SimpleQueue[Command | _Arrived | None] = queue.SimpleQueue()
        self._num_sent = 0
        self._sent: deque[Any] = deque()
        """Calls that have not been seen to arrive."""
        self._is_up = threading.Event()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._actor: Any = None
        self._shipping: Shipping | None = None

    def submit(self, commands: Sequence[Command]) -> None:
        """See `Running`."""
        for command in commands:
            self._outgoing.put(command)

    def stop(self) -> None:
        """See `Running`."""
        self._outgoing.put(None)

    def end(self, lost: Lost | None = None) -> None:
        """End the actor, whatever it does, and tell of its loss, if it is one. From any thread, without waiting for
        Ray. Only the first call counts.
        """
        with self._lock:
            is_first = not self._is_over.is_set()
            self._is_over.set()
        if not is_first:
            return
        if self._shipping is not None:
            self._shipping.abandon()
        if lost is not None:
            self._tell([lost])
        self._is_up.set()
        self._outgoing.put(None)

    def lose(self, reason: str) -> None:
        """End it, and say why."""
        self.end(Lost(worker=self._options.worker, reason=reason))

    def run(self) -> None:
        """Find a place, start the actor there, and carry events until it ends.

        Raises:
            CookhouseError: it cannot be started there.
        """
        group, bundle = self._cluster.place(self._options.worker, self._options.index)
        try:
            if not self._is_over.is_set():  # while there was no place
                self._run(group, bundle)
        finally:
            with contextlib.suppress(RayError):
                ray.util.remove_placement_group(group)

    def _run(self, group: PlacementGroup, bundle: Mapping[str, float]) -> None:
        (node_id,) = ray.util.placement_group_table(group)["bundles_to_node_id"].values()
        node = self._cluster.node(node_id)
        self._actor = make_actor(group, bundle, self._load, self._make)
        watcher = threading.Thread(target=self._watch, args=(node,), name="watcher", daemon=True)
        watcher.start()
        try:
            self._begin(node, bundle)
            threading.Thread(target=self._send_all, name="sender", daemon=True).start()
            self._read(node)
        finally:
            self.end()
            watcher.join()

    def _begin(self, node: Node, bundle: Mapping[str, float]) -> None:
        is_here = node.node_id == self._cluster.node_id
        if not is_here:
            self._shipping = Shipping(
                self._actor, self._objects, self._options.worker, tell=self._tell, submit=self.submit, lose=self.lose
            )
        base_models = self._engine_options.get("base_models", [])
        place = Place(
            node=node.name,
            is_here=is_here,
            working_folder=str(Path.cwd()),
            model_folders=() if is_here else tuple(name for name in base_models if Path(name).is_dir()),
        )
        options = replace(
            self._options,
            index=0,  # Ray gives it cores and GPUs of its own, but no memory
            num_sharing=1,
            memory_bytes=memory_share(bundle, node.total),
            gpu_part=min(bundle.get("GPU", 1.0), 1.0),
        )
        told = {**asdict(options), "folder": str(options.folder.absolute())}
        engine = {**self._engine_options, "device": device_of(bundle, self._engine_options.get("device"))}
        begin(self._actor, node.name, b"".join(encode((told, engine))), tuple(place))

    def _read(self, node: Node) -> None:
        try:
            for reference in self._actor.events.options(num_returns="streaming").remote():
                self._take(ray.get(reference), node)
            if self._shipping is not None:
                self._shipping.close()
        except RayError as error:
            if self._is_over.is_set():
                return
            self._check_cluster()
            what = "its actor died" if answers(node.name, node.port) else "its node is gone"
            self.lose(f"{what}, node {node.name}: {said(error)}")

    def _take(self, frames: bytes, node: Node) -> None:
        for event in decode_all(frames):
            if isinstance(event, Lost):
                self.end(event)
                return
            told: Event | None = with_own_tokenizers(event)
            if isinstance(told, Up):
                told = replace(told, node=node.name)
            if self._shipping is not None and told is not None:
                told = self._shipping.inward(told)
            if told is not None:
                self._tell([told])
            if isinstance(event, Up):
                self._is_up.set()

    def _send_all(self) -> None:
        with ThreadPoolExecutor(_MAX_CARRIERS, "carrier") as carriers, self._or_lost("commands cannot be sent"):
            order = CommandOrder()
            is_last = False
            while not is_last:
                for message in self._take_outgoing():
                    if isinstance(message, _Arrived):
                        order.arrived(message.command)
                    else:
                        order.put(message, is_transfer=self._needs_files(message))
                if self._is_over.is_set():
                    return
                ready, to_carry = order.take()
                for command in to_carry:
                    carriers.submit(self._carry, command)
                is_last = None in ready
                self._send(ready)

    def _needs_files(self, command: Command | None) -> bool:
        return self._shipping is not None and command is not None and self._shipping.needs_files(command)

    def _carry(self, command: Command) -> None:
        """Have a command's files sent, and then it. In a carrier's thread."""
        with self._or_lost("files cannot be sent"):
            self._is_up.wait()  # its folder is emptied before
            if self._shipping is not None and not self._is_over.is_set():
                self._outgoing.put(_Arrived(self._shipping.outward(command)))

    def _send(self, commands: Sequence[Command | None]) -> None:
        frames: list[memoryview] = []
        for command in commands:
            if self._shipping is not None and command is not None:
                command = self._shipping.outward(command)
            frames += encode(command)
        if frames:
            self._sent.append(self._actor.submit.remote(self._num_sent, b"".join(frames)))
            self._num_sent += 1

    def _take_outgoing(self) -> list[Command | _Arrived | None]:
        """What is there; waits for at least one."""
        taken = [self._outgoing.get()]
        with contextlib.suppress(queue.Empty):
            while len(taken) < _MAX_COMMANDS:
                taken.append(self._outgoing.get_nowait())
        return taken

    def _watch(self, node: Node) -> None:
        """Notice a node that is gone before Ray does, which may take half a minute, and end the actor in the end."""
        misses = 0
        while not self._is_over.wait(_WATCH_SECONDS):
            with self._or_lost("a command did not arrive"):
                self._check_sent()
            misses = 0 if answers(node.name, node.port) else misses + 1
            if misses == _MAX_MISSES:
                self.lose(f"its node {node.name} does not answer")
        with contextlib.suppress(RayError):  # it has ended
            ray.wait([self._actor.leave.remote()], timeout=_LEAVE_SECONDS)
        with contextlib.suppress(RayError):
            ray.kill(self._actor)

    def _check_sent(self) -> None:
        """Raise what a call raised: all that were sent after one that is lost wait for it, for ever."""
        sent = [self._sent.popleft() for _ in range(len(self._sent))]
        if sent:
            arrived, under_way = ray.wait(sent, num_returns=len(sent), timeout=0)
            self._sent.extend(under_way)
            ray.get(arrived)

    @contextlib.contextmanager
    def _or_lost(self, what: str) -> Iterator[None]:
        """Whatever is raised within ends the worker, in words: no thread of its ends without them."""
        try:
            yield
        except Exception as error:
            if self._is_over.is_set():
                return
            if not isinstance(error, RayError):
                _log.exception("%s to worker %s", what, self._options.worker)
            self._check_cluster()
            self.lose(f"{what}: {said(error)}")
