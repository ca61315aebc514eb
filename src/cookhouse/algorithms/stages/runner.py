"""Runner of a workflow: preparation, also for a dry run; setup, body and final stages, each a span; and cleanup."""

import asyncio
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cookhouse.algorithms.stages.execution import execute, execute_all, named
from cookhouse.algorithms.stages.headline import check_headline, headline_first
from cookhouse.algorithms.stages.sinks import named_sinks
from cookhouse.algorithms.stages.state import RunContext, RunState
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.blobs import BlobStore
from cookhouse.errors import CookhouseError, UnknownNameError
from cookhouse.files import cannot_write, unwritable
from cookhouse.runs import FolderChoice, RunPlan, RunResult, put_run, run_prefix, write_result
from cookhouse.telemetry import Telemetry, check_sink, events, find_metric, is_held_out, keys, logs_of
from cookhouse.weights.names import find_weights

R = TypeVar("R", bound=RunState)


async def run_workflow(workflow: Workflow[R], context: RunContext) -> RunResult[R]:
    """Run every stage in order; an interrupt in the body skips the final ones.

    Raises:
        InputError: the workflow is wired wrong, and nothing has run.
        InputError, ServiceError: a stage raised it; a note on it names the stage.
        StageError: a stage raised something else.
    """
    with logs_of(context.folder.path):
        return await _run(workflow, context)


async def _run(workflow: Workflow[R], context: RunContext) -> RunResult[R]:
    start_seconds = time.monotonic()
    state = started(workflow, context)
    try:
        await prepare(workflow, state)
        for stage in workflow.setup[len(workflow.preparing) :]:
            await execute(stage, state)
        with named(workflow.body.title):
            is_whole = await workflow.body.run(workflow.body.parts, state)
        if not is_whole or not await execute_all(workflow.final, state):
            context.status = "interrupted"
    except BaseException as error:
        context.status = "interrupted" if isinstance(error, asyncio.CancelledError) else "errored"
        context.error = error
        raise
    finally:
        await execute(workflow.cleanup, state)
    blobs, folder = context.adapters.blobs, context.folder
    result = headline_first(_marked(state.result(time.monotonic() - start_seconds), folder.synthetic))
    if blobs is not None:
        address = blobs.address(run_prefix(folder.path))
        result = replace(result, artifacts={**result.artifacts, "artifact_store": address})
    if not result.summary.is_interrupted:
        write_result(result)
    if blobs is not None and folder.path.is_dir():
        context.telemetry.event(events.RUN_ARTIFACTS, text=f"putting the files of the run to {address}")
        await _put(folder.path, blobs, context.telemetry)
    return result


def _marked(result: RunResult[R], synthetic: tuple[str, ...]) -> RunResult[R]:
    """With a mark wherever a figure or a path is read from, if something of it was made up."""
    if not synthetic:
        return result
    summary = replace(result.summary, synthetic=synthetic)
    if (
        "service" in synthetic and summary.next_command and not summary.is_interrupted
    ):  # nobody can sample from what is only made up
        summary = replace(summary, next_command=f"cookhouse report {shlex.quote(str(summary.folder))}")
    return replace(
        result,
        summary=summary,
        metrics={**result.metrics, "synthetic": 1.0},
        artifacts={**result.artifacts, "synthetic": ", ".join(synthetic)},
    )


async def _put(folder: Path, blobs: BlobStore, telemetry: Telemetry) -> None:
    with telemetry.span("put_artifacts"):
        try:
            await asyncio.to_thread(put_run, folder, blobs)
        except CookhouseError as error:
            error.add_note(f"the run is complete in {folder}; only its copy is not")
            raise


async def dry_run_workflow(workflow: Workflow[R], context: RunContext) -> RunPlan:
    """Prepare a run, and say what it would do. Raises as `prepare`."""
    state = started(workflow, context)
    async with context.closing:
        await prepare(workflow, state)
    return RunPlan(
        recipe=context.recipe,
        config=context.folder.config,
        folder=context.folder.path,
        facts=state.facts(),
        notes=context.notes,
        previews=state.previews(),
    )


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
    check_headline(state.context.folder.config.get("headline"))
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
    """Check the metric that `keep_best` names; whether the run measures it is known once it has been evaluated."""
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
    for each in context.folder.weights:
        weights = find_weights(each.name, registry)
        if each.known.purpose == "training":
            weights.path("training")
        elif not Path(each.name).is_file():
            weights.place("sampling")
