"""Preparation of a run before a session is opened, by a run and by its dry run alike."""

import asyncio
from pathlib import Path
from typing import Any, TypeVar

from cookhouse.errors import UnknownNameError
from cookhouse.files import cannot_write, unwritable
from cookhouse.runs import FolderChoice, run_prefix
from cookhouse.telemetry import check_sink, find_metric, is_held_out, keys
from cookhouse.weights.names import find_weights
from cookhouse.workflows.stages.execution import execute
from cookhouse.workflows.stages.sinks import named_sinks
from cookhouse.workflows.stages.state import RunContext, RunState
from cookhouse.workflows.stages.workflow import Workflow

R = TypeVar("R", bound=RunState)


def started(workflow: Workflow[R], context: RunContext) -> R:
    """The state that stages then fill.

    Raises:
        InputError: the stages do not fit together, or a port has no adapter.
    """
    workflow.check(context.adapters.ports | {"service"})  # one is found where none is given
    return workflow.start(context)


async def prepare(workflow: Workflow[R], state: R) -> None:
    """Resolve what a run needs, but for the service: places, sinks, weights; then what the first stages read and build,
    and what other runs that it consists of need. Leaves no files, and asks no service.

    Raises:
        InputError: something is missing, or cannot be used; a note on it names the stage, if it is one.
        StageError: a stage raised something else.
    """
    await asyncio.to_thread(_check, state.context)
    for stage in workflow.preparing:
        await execute(stage, state)
    _check_best(state.context.folder.config.get("keep_best"))  # after what may declare metrics
    await asyncio.to_thread(_check_weights, state.context)  # last: stages say more of those that do not fit
    await workflow.body.prepare(state)


def _check(context: RunContext) -> None:
    adapters, config, folder = context.adapters, context.folder.config, context.folder.path
    if (reason := unwritable(folder)) is not None:
        raise cannot_write(folder, reason)
    for name in named_sinks(context):
        check_sink(name)
    if adapters.blobs is not None:
        run_prefix(folder)  # refuses a name that can be in no key
        _check_writable(adapters.blobs)
    if config.get("registered_model_name") is not None:
        _check_writable(adapters.registry)


def _check_best(metric: str | None) -> None:
    """What `keep_best` names; whether the run measures it is known once it has been evaluated."""
    if metric in (None, "auto") or (is_held_out(metric) and find_metric(metric).direction is not None):
        return
    known = [name for name in vars(keys).values() if isinstance(name, str) and is_held_out(name)]
    allowed = ["auto", *(name for name in known if find_metric(name).direction is not None)]
    way_out = "it has to be held out (test/...) and declared as better with less or with more of it"
    raise UnknownNameError("metric of keep_best", metric, allowed, way_out=way_out)


def _check_writable(adapter: Any) -> None:
    """Asks an adapter that can tell."""
    check = getattr(adapter, "check_writable", None)
    if check is not None:
        check()


def _check_weights(context: RunContext) -> None:
    if context.choice is FolderChoice.RESUME:  # it loads its own
        return
    registry = context.adapters.registry
    for named in context.folder.weights:
        weights = find_weights(named.name, registry)
        if named.known.purpose == "training":
            weights.path("training")
        elif not Path(named.name).is_file():
            weights.place("sampling")
