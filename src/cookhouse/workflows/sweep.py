"""Runs that differ in their settings, one after another or several at a time, on one service."""

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.registry import Descent
from cookhouse.runs import (
    RunFolder,
    RunResult,
    RunSummary,
    SweepRecord,
    open_folder,
    part_names,
    read_record,
    write_report,
    write_sweep,
)
from cookhouse.runs.names import EXPERIMENT_FILE, METRICS_FILE
from cookhouse.settings import SweepSettings
from cookhouse.telemetry import Values, events, metrics_at
from cookhouse.training.clients.session import close_service
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, CheckpointFile, named_by_run
from cookhouse.workflows.pipeline import RunChild
from cookhouse.workflows.stages.registering import register_run
from cookhouse.workflows.stages.stage import SlotStage, Stage, stage
from cookhouse.workflows.stages.state import RunState
from cookhouse.workflows.stages.workflow import Workflow

DescentOf = Callable[[Mapping[str, Any]], Descent]
"""Of the settings of a run, how what it trains comes from what it starts from."""


@dataclass(kw_only=True)
class SweepState(RunState):
    """What the stages of a sweep hand to one another."""

    config: SweepSettings
    document: str
    folder: RunFolder = field(init=False)
    path: Path = field(init=False)
    results: dict[str, RunResult[Any]] = field(default_factory=dict)
    """Of the runs that came to an end or were interrupted, by name."""
    errors: dict[str, str] = field(default_factory=dict)
    """What ended the others that have begun, by name."""
    record: SweepRecord = field(init=False)
    registered_model: str | None = None
    """What the best run was registered as."""


def sweep_workflow(
    config: SweepSettings, run_child: RunChild, descent_of: DescentOf, document: str
) -> Workflow[SweepState]:
    """The runs, each in a folder of its own below the sweep's; one that has finished before is not run again.

    `document` is what `cookhouse sweep` would make the same runs of; it is kept beside them.
    """
    names = part_names(config.runs)
    return Workflow(
        name="sweep",
        state_class=SweepState,
        start=lambda context: SweepState(context=context, config=config, document=document),
        setup=(init_folder,),
        body=Runs(runs=dict(zip(names, config.runs, strict=True)), run_child=run_child),
        final=(register_best(descent_of),),
        cleanup=cleanup,
        result=_result,
        facts=lambda state: {name: _told(run) for name, run in zip(names, state.config.runs, strict=True)},
    )


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The runs of a sweep. One that fails leaves the others alone."""

    runs: Mapping[str, Mapping[str, Any]]
    run_child: RunChild
    title: str = "runs"
    reads: tuple[str, ...] = ("config", "path", "results", "errors")
    writes: tuple[str, ...] = ("record", "results", "errors")
    parts: tuple[Stage[SweepState], ...] = ()

    @property
    def children(self) -> Sequence[str]:
        return tuple(self.runs)

    def with_parts(self, name: str, instead: Sequence[Stage[Any] | SlotStage[Any]]) -> "Runs":
        del instead
        raise InputError(f"{name} is no stage of this workflow, which consists of other runs")

    async def prepare(self, state: SweepState) -> None:
        """Each run is prepared when its turn comes: one that cannot work leaves the others alone."""

    async def run(self, state: SweepState) -> bool:
        waiting = iter(self.runs.items())

        async def work() -> None:
            for name, settings in waiting:
                if state.interrupt.is_requested:
                    return
                await self._run_one(state, name, settings)

        try:
            with state.interrupt.deferred():
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(state.config.jobs, len(self.runs))):
                        group.create_task(work())
        finally:
            state.record = await asyncio.to_thread(write_sweep, state.path, state.errors)
            await asyncio.to_thread(write_report, state.path)
        if state.errors and not state.interrupt.is_requested:
            state.status = "errored"
            state.error = InputError(f"{len(state.errors)} of {len(self.runs)} runs failed: {', '.join(state.errors)}")
        is_whole = len(state.results) + len(state.errors) == len(self.runs)
        return is_whole and not any(result.summary.is_interrupted for result in state.results.values())

    async def _run_one(self, state: SweepState, name: str, settings: Mapping[str, Any]) -> None:
        def tell(what: str) -> None:
            state.telemetry.event(events.RUN_PART, text=f"run {name}: {what}")

        tell("begins")
        try:
            result = await self.run_child(state.context, state.config.recipe, state.path / name, settings)
        except Exception as error:
            state.errors[name] = f"{type(error).__name__}: {error}"
            tell(f"failed, and the others go on: {error}")
            return
        state.results[name] = result
        headline = (await asyncio.to_thread(read_record, state.path / name)).headline
        how = "interrupted and saved" if result.summary.is_interrupted else "finished"
        tell(how if headline is None else f"{how}, {headline.text}")


@stage(doing="opening the folder", reads=("document",), writes=("folder", "path"), leaves_files=True)
async def init_folder(state: SweepState) -> None:
    """Open the folder that the runs' own are in."""
    folder = await asyncio.to_thread(open_folder, state.context.folder, state.context.choice)
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
    """The figures of the best run, or of none where nobody can tell, and the metrics of each under its name."""
    results, best = state.results, state.record.table.best
    top = None if best is None or best.name not in results else results[best.name].summary
    is_interrupted = len(results) + len(state.errors) < len(state.config.runs) or any(
        result.summary.is_interrupted for result in results.values()
    )
    folder = shlex.quote(str(state.path))
    is_left = is_interrupted or bool(state.errors) or top is None
    summary = RunSummary(
        recipe=f"sweep of {state.config.recipe}",
        model_name=state.config.model_name,
        folder=state.path,
        is_interrupted=is_interrupted,
        num_steps=sum(result.summary.num_steps for result in results.values()),
        total_steps=sum(result.summary.total_steps for result in results.values()),
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
    told = [result.summary.usage for result in results.values() if result.summary.usage is not None]
    names = dict.fromkeys(name for usage in told for name in usage)
    return {name: sum(usage.get(name, 0) for usage in told) for name in names} or None


def _told(run: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in run.items() if name != "model_name")
