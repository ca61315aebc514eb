"""Runs a workflow: setup, body, final, each stage a span, and cleanup whatever happened."""

import asyncio
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from cookhouse.blobs import BlobStore
from cookhouse.errors import CookhouseError
from cookhouse.runs import RunPlan, RunResult, put_run, run_prefix, write_result
from cookhouse.telemetry import Telemetry, events, logs_of
from cookhouse.workflows.stages.execution import execute, execute_all, named
from cookhouse.workflows.stages.preparing import prepare, started
from cookhouse.workflows.stages.state import RunContext, RunState
from cookhouse.workflows.stages.workflow import Workflow

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
            is_whole = await workflow.body.run(state)
        if not is_whole or not await execute_all(workflow.final, state):
            state.status = "interrupted"
    except BaseException as error:
        state.status = "interrupted" if isinstance(error, asyncio.CancelledError) else "errored"
        state.error = error
        raise
    finally:
        await execute(workflow.cleanup, state)
    blobs, folder = context.adapters.blobs, context.folder
    result = _marked(workflow.result(state, time.monotonic() - start_seconds), folder.synthetic)
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
    if "service" in synthetic and not summary.is_interrupted:  # nobody can sample from what is only made up
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
    async with state.closing:
        await prepare(workflow, state)
    return RunPlan(
        recipe=context.recipe,
        config=state.context.folder.config,
        folder=context.folder.path,
        facts=workflow.facts(state),
        notes=workflow.notes(state),
        previews=workflow.previews(state),
    )
