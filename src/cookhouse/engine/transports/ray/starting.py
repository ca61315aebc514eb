"""An actor on a node, made and found to be of our version."""

import platform
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cookhouse.engine.transports.child_process import MakeRunning
from cookhouse.engine.transports.ray.actor import WorkerActor
from cookhouse.engine.transports.ray.ray_errors import said
from cookhouse.errors import InputError, ServiceError
from cookhouse.version import __version__

_START_SECONDS = 120.0
_MAX_CALLS = 16
"""Of an actor's methods at a time: events, commands, and parts of files."""


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
