"""The workflow of a sweep: runs that differ in their settings, on one service, and the best of them registered."""

import asyncio
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cookhouse.algorithms.stages.registering import register_run
from cookhouse.algorithms.stages.stage import Stage, stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.files import write_whole
from cookhouse.registry import Descent
from cookhouse.runs import RunFolder, RunResult, RunSummary, open_folder
from cookhouse.runs.names import METRICS_FILE
from cookhouse.sweeps.body import HalvedRuns, SweepRuns, SweepState
from cookhouse.sweeps.record import EXPERIMENT_FILE, part_names, write_page
from cookhouse.sweeps.settings import SweepSettings
from cookhouse.telemetry import Values, metrics_at
from cookhouse.training.clients.session import close_service
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, CheckpointFile, named_by_run
from cookhouse.workflows.pipeline import RunChild

DescentOf = Callable[[Mapping[str, Any]], Descent]
"""Of the settings of a run, how what it trains comes from what it starts from."""


def sweep_workflow(
    config: SweepSettings, run_child: RunChild, descent_of: DescentOf, document: str
) -> Workflow[SweepState]:
    """The runs, each in a folder of its own below the sweep's; one that has finished before is not run again.

    `document` is what `cookhouse sweep` would make the same runs of; it is kept next to them.
    """
    names = part_names(config.runs)
    body = SweepRuns if config.min_steps is None else HalvedRuns
    return Workflow(
        name="sweep",
        state_class=SweepState,
        start=lambda context: SweepState(context=context, config=config, document=document),
        setup=(init_folder,),
        body=body(runs=dict(zip(names, config.runs, strict=True)), run_child=run_child),
        final=(register_best(descent_of),),
        cleanup=cleanup,
        result=_result,
        facts=lambda state: {name: _settings_text(run) for name, run in zip(names, state.config.runs, strict=True)},
    )


@stage(doing="opening the folder", reads=("document",), writes=("folder", "path"), leaves_files=True)
async def init_folder(state: SweepState) -> None:
    """Open the folder that the runs' own are in."""
    folder = await asyncio.to_thread(open_folder, state.context.folder, state.context.choice, write_page)
    state.folder, state.path = folder, folder.path
    state.closing.push_async_callback(_close_folder, state, folder)
    await asyncio.to_thread(write_whole, folder.path / EXPERIMENT_FILE, state.document)


def register_best(descent_of: DescentOf) -> Stage[SweepState]:
    """The stage that registers the weights of the best run, where a name was given and every run has finished."""

    async def register(state: SweepState) -> None:
        best = state.record.table.best
        if best is None:
            return
        run = dict(zip(part_names(state.config.runs), state.config.runs, strict=True))[best.name]
        path = state.path / best.name
        record = state.record.records[best.name]
        config = {**record.config["config"], "registered_model_name": state.config.registered_model_name}
        folder = replace(state.context.folder, path=path, config=config, free_fields=record.config["free_on_resume"])
        context = replace(state.context, recipe=state.config.recipe, folder=folder)
        saved = named_by_run(CheckpointFile(path / CHECKPOINTS_FILE).read())[0]
        metrics: Values = state.results[best.name].metrics
        if not saved.final:
            metrics = metrics_at(path / METRICS_FILE, saved.step)
        service = await context.connect()
        try:
            version = await register_run(context, saved, metrics, descent_of(run), service=service)
        finally:
            await close_service(service, "success")
        state.registered_model = version.id

    return Stage(
        name="register_best",
        doing="registering the best model",
        run=register,
        reads=("config", "record", "path", "results", "errors"),
        writes=("registered_model",),
        needs=("service",),
        uses=("registry",),
        when=lambda state: (
            state.config.registered_model_name is not None
            and state.context.adapters.registry is not None
            and not state.errors
        ),
    )


async def _close_folder(state: SweepState, folder: RunFolder) -> None:
    await asyncio.to_thread(folder.end, state.status, state.error)
    folder.close()
    if not any(path.is_dir() for path in folder.path.iterdir()):
        folder.discard()


@stage(doing="closing the folder")
async def cleanup(state: SweepState) -> None:
    """Stop logging; a folder in which no run has left anything goes."""
    await state.closing.aclose()


def _result(state: SweepState, seconds: float) -> RunResult[SweepState]:
    """The figures of the best run, or of none where no run is the best, and the metrics of each under its name."""
    results, best = state.results, state.record.table.best
    top = None if best is None or best.name not in results else results[best.name].summary
    is_interrupted, halving = not state.is_whole, state.halving
    folder = shlex.quote(str(state.path))
    is_left = is_interrupted or bool(state.errors) or top is None
    summary = RunSummary(
        recipe=f"sweep of {state.config.recipe}",
        model_name=state.config.model_name,
        folder=state.path,
        is_interrupted=is_interrupted,
        num_steps=halving.num_steps if halving else sum(result.summary.num_steps for result in results.values()),
        total_steps=(
            len(state.config.runs) * halving.rungs[-1]
            if halving
            else sum(result.summary.total_steps for result in results.values())
        ),
        seconds=seconds,
        figures=[] if top is None else top.figures,
        samples=[],
        report=state.path / "report.html",
        state_path=None if top is None else top.state_path,
        sampler_path=None if top is None else top.sampler_path,
        next_command=f"cookhouse runs resume {folder}" if is_left or top is None else top.next_command,
        usage=_usage(results),
        stopped=state.interrupt.reason if is_interrupted else None,
        registered_model=state.registered_model,
    )
    metrics = {f"{name}/{key}": value for name, result in results.items() for key, value in result.metrics.items()}
    artifacts = {
        "folder": str(state.path),
        "report": str(summary.report),
        **{f"{name}/{key}": value for name, result in results.items() for key, value in result.artifacts.items()},
    }
    return RunResult(state=state, metrics=metrics, artifacts=artifacts, summary=summary)


def _usage(results: Mapping[str, RunResult[Any]]) -> Mapping[str, float] | None:
    usages = [result.summary.usage for result in results.values() if result.summary.usage is not None]
    names = dict.fromkeys(name for usage in usages for name in usage)
    return {name: sum(usage.get(name, 0) for usage in usages) for name in names} or None


def _settings_text(run: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in run.items() if name != "model_name")
