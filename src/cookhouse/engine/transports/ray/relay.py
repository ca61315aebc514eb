"""Relay of one worker, in the driver: makes its actor on a node, sends what goes to it and reads what comes back.

`end` is the one way to end, from whatever thread. It reports why, and wakes the others:

run      finds a place, starts the actor, and reads its events until the last one; then gives the place back
sender   submits commands: see `submitting`
watcher  looks after the node and what was sent; after the end it ends the actor
"""

import contextlib
import logging
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cookhouse.assets import resolve_model
from cookhouse.engine.contract import BaseModelInfo, Command, Event, Lost, Up, WorkerOptions
from cookhouse.engine.transports.child_process import MakeRunning, Tell
from cookhouse.engine.transports.messages import decode_all, encode
from cookhouse.engine.transports.ray.actor import Place, WorkerActor
from cookhouse.engine.transports.ray.addresses import answers
from cookhouse.engine.transports.ray.bundles import device_of, memory_share
from cookhouse.engine.transports.ray.cluster import Cluster, Node
from cookhouse.engine.transports.ray.ray_errors import said
from cookhouse.engine.transports.ray.shipping import ObjectCache, Shipping
from cookhouse.engine.transports.ray.submitting import Submitter
from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.version import __version__

_START_SECONDS = 120.0
_MAX_CALLS = 16
"""Of an actor's methods at a time: events, commands, and parts of files."""
_log = logging.getLogger(__name__)
_WATCH_SECONDS, _MAX_MISSES = 1.0, 3
"""How often a node is asked whether it is there, and how often in a row it may miss that."""
_LEAVE_SECONDS = 5.0
"""For an actor to delete its files and end; then it is killed."""


def with_own_tokenizers(event: Event) -> Event:
    """An event of a worker, for the server."""
    if isinstance(event, Up):
        return replace(event, base_models=tuple(map(_with_own_tokenizer, event.base_models)))
    return event


def _with_own_tokenizer(info: BaseModelInfo) -> BaseModelInfo:
    folder = Path(resolve_model(info.name))
    return replace(info, tokenizer_id=str(folder.resolve())) if folder.is_dir() else info


def make_actor(group: PlacementGroup, bundle: Mapping[str, float], load: Callable[[], None], make: MakeRunning) -> Any:
    """A `WorkerActor` in a place that was reserved. It starts meanwhile."""
    return (
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
        .remote(max(1, int(bundle["CPU"])), load, make)
    )


def begin(actor: Any, node: str, frame: bytes, place: tuple[Any, ...]) -> None:
    """Wait until an actor runs on the node of this name, and have it make its engine.

    Raises:
        InputError: what it needs is not installed there, or another version of it.
        ServiceError: it does not start, or has died.
    """
    _check_versions(actor, node)
    try:
        ray.get(actor.begin.remote(frame, place))
    except RayError as error:
        raise ServiceError(f"the actor on node {node} died at its start: {said(error)}") from error


def _check_versions(actor: Any, node: str) -> None:
    try:
        theirs = ray.get(actor.versions.remote(), timeout=_START_SECONDS)
    except GetTimeoutError as error:
        raise ServiceError(f"no actor starts on node {node} within {_START_SECONDS:g} s; see Ray's logs") from error
    except RayError as error:
        if "No module named 'cookhouse" in str(error):
            raise InputError(
                f"node {node} has no cookhouse: install it there, version {__version__}, for the Python that Ray runs "
                "with"
            ) from error
        raise ServiceError(f"no actor starts on node {node}: {said(error)}") from error
    for name, own, their in zip(("cookhouse", "Python"), (__version__, platform.python_version()), theirs, strict=True):
        if own != their:
            raise InputError(f"node {node} has {name} {their}, and this machine {name} {own}; install the same on both")


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
        """`check_cluster` is called before a loss is reported that may be the cluster's."""
        self._cluster = cluster
        self._objects = objects
        self._options = options
        self._engine_options = engine_options
        self._load = load
        self._make = make
        self._tell_server = tell
        self._check_cluster = check_cluster
        self._submitter = Submitter(self._tell, self._or_lost)
        self._is_ending = False
        self._is_over = threading.Event()
        """Nothing more is sent."""
        self._lock = threading.Lock()
        self._actor: Any = None
        self._shipping: Shipping | None = None

    def submit(self, commands: Sequence[Command]) -> None:
        """See `Running`."""
        self._submitter.submit(commands)

    def stop(self) -> None:
        """See `Running`."""
        self._submitter.submit([None])

    def end(self, lost: Lost | None = None) -> None:
        """End the actor, whatever it does, and tell of its loss, if it is one. From any thread, without waiting for
        Ray. Only the first call counts.
        """
        with self._lock:
            is_first, self._is_ending = not self._is_ending, True
        if not is_first:
            return
        if self._shipping is not None:
            self._shipping.abandon()
        with self._lock:
            if lost is not None:
                self._tell_server([lost])
            self._is_over.set()
        self._submitter.end()

    def lose(self, reason: str) -> None:
        """End it, and say why."""
        self.end(Lost(worker=self._options.worker, reason=reason))

    def run(self) -> None:
        """Find a place, start the actor there, and carry events until it ends."""
        with self._or_lost("it cannot be started"):
            group, bundle = self._cluster.place(self._options.worker, self._options.index)
            try:
                if not self._is_over.is_set():  # while there was no place
                    self._run(group, bundle)
            finally:
                with contextlib.suppress(RayError):
                    ray.util.remove_placement_group(group)

    def _tell(self, events: Sequence[Event]) -> None:
        """Tell events, in order; nothing once it is over."""
        with self._lock:
            if not self._is_over.is_set():
                self._tell_server(events)

    def _run(self, group: PlacementGroup, bundle: Mapping[str, float]) -> None:
        (node_id,) = ray.util.placement_group_table(group)["bundles_to_node_id"].values()
        node = self._cluster.node(node_id)
        self._actor = make_actor(group, bundle, self._load, self._make)
        watcher = threading.Thread(target=self._watch, args=(node,), name="watcher", daemon=True)
        watcher.start()
        try:
            with self._or_lost("it cannot be started"):
                self._begin(node, bundle)
                sender = partial(self._submitter.run, self._actor, self._shipping)
                threading.Thread(target=sender, name="sender", daemon=True).start()
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
                self._submitter.begin_files()

    def _watch(self, node: Node) -> None:
        """Notice a node that is gone before Ray does, which may take half a minute, and end the actor in the end."""
        misses = 0
        while not self._is_over.wait(_WATCH_SECONDS):
            with self._or_lost("a command did not arrive"):
                self._submitter.check_sent()
            misses = 0 if answers(node.name, node.port) else misses + 1
            if misses == _MAX_MISSES:
                self.lose(f"its node {node.name} does not answer")
        with contextlib.suppress(RayError):  # it has ended
            ray.wait([self._actor.leave.remote()], timeout=_LEAVE_SECONDS)
        with contextlib.suppress(RayError):
            ray.kill(self._actor)

    @contextlib.contextmanager
    def _or_lost(self, what: str) -> Iterator[None]:
        """Whatever is raised within ends the worker, in words: no thread of its ends without them."""
        try:
            yield
        except Exception as error:
            if self._is_over.is_set():
                return
            if isinstance(error, CookhouseError) and not isinstance(error, RayError):  # its words say why
                self.end(Lost.by(error, self._options.worker))
                return
            if not isinstance(error, RayError):
                _log.exception("worker %s: %s", self._options.worker, what)
            self._check_cluster()
            self.lose(f"{what}: {said(error)}")
