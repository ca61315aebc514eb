"""Runs one after another as one: each has a folder below its parent's, and one that has finished is not run again."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cookhouse.algorithms.stages.body import Child, Children, PipelineState
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.runs import RunFolder, RunResult, RunSummary, open_folder
from cookhouse.settings import RunSettings

RunChild = Callable[[RunContext, str, Path, Mapping[str, Any]], Awaitable[RunResult[Any]]]
"""Runs a recipe in a folder, with settings, for the run of that context."""
PrepareChild = Callable[[RunContext, str, Path, Mapping[str, Any]], Awaitable[None]]
"""Prepares the same, and runs nothing."""


@dataclass(frozen=True, kw_only=True)
class ChildRun:
    """Run of a pipeline: a recipe by name, and its settings as a function of the folders of the runs before it."""

    name: str
    recipe: str
    settings: Callable[[Mapping[str, Path]], Mapping[str, Any]]
    """A run directory names weights: `{"load_checkpoint_path": str(folders["sft"])}` hands them on."""


@dataclass(kw_only=True)
class PipelineRunState(PipelineState):
    """State that the stages of a pipeline share."""

    config: RunSettings


def pipeline_workflow(
    config: RunSettings, runs: Sequence[ChildRun], run_child: RunChild, prepare_child: PrepareChild
) -> Workflow[PipelineRunState]:
    """The runs in order; a pipeline that is resumed goes on in the first that has not finished."""

    def child(run: ChildRun) -> Child[PipelineRunState]:
        async def run_it(state: PipelineRunState, folder: Path) -> RunResult[Any]:
            folders = {name: result.summary.folder for name, result in state.results.items()}
            return await run_child(state.context, run.recipe, folder, run.settings(folders))

        async def prepare_it(state: PipelineRunState, folder: Path) -> None:
            try:
                settings = run.settings(_NotYet())
            except _NotYetError:
                return
            await prepare_child(state.context, run.recipe, folder, settings)

        return Child(name=run.name, run=run_it, prepare=prepare_it)

    return Workflow(
        name="pipeline",
        state_class=PipelineRunState,
        start=lambda context: PipelineRunState(context=context, config=config),
        setup=(init_folder,),
        body=Children(runs=tuple(child(run) for run in runs)),
        final=(),
        cleanup=cleanup,
        result=_result,
        facts=lambda state: {run.name: run.recipe for run in runs},  # noqa: ARG005
    )


class _NotYetError(Exception):
    """A run takes what another one is to leave."""


class _NotYet(Mapping[str, Path]):
    """The folders of runs that have not been."""

    def __getitem__(self, name: str) -> Path:
        raise _NotYetError(name)

    def __iter__(self) -> Iterator[str]:
        raise _NotYetError

    def __len__(self) -> int:
        raise _NotYetError


@stage(doing="opening the folder", writes=("folder", "path"), leaves_files=True)
async def init_folder(state: PipelineRunState) -> None:
    """Open the folder that the runs' own are in."""
    folder = await asyncio.to_thread(open_folder, state.context.folder, state.context.choice)
    state.folder, state.path = folder, folder.path
    state.closing.push_async_callback(_close_folder, state, folder)


async def _close_folder(state: PipelineRunState, folder: RunFolder) -> None:
    await asyncio.to_thread(folder.end, state.status, state.error)
    folder.close()
    if not any(path.is_dir() for path in folder.path.iterdir()):
        folder.discard()


@stage(doing="closing the folder")
async def cleanup(state: PipelineRunState) -> None:
    """Stop logging; a folder in which no run has left anything goes."""
    await state.closing.aclose()


def _result(state: PipelineRunState, seconds: float) -> RunResult[PipelineRunState]:
    """The figures of the last run that was begun, and the metrics of each under its name."""
    last, is_interrupted = list(state.results.values())[-1].summary, state.status == "interrupted"
    folder = shlex.quote(str(state.path))
    resume = f"cookhouse {state.context.command} log_path={folder} behavior_if_log_dir_exists=resume"
    summary = RunSummary(
        recipe=state.context.recipe,
        model_name=state.config.model_name,
        folder=state.path,
        is_interrupted=is_interrupted,
        num_steps=sum(result.summary.num_steps for result in state.results.values()),
        total_steps=sum(result.summary.total_steps for result in state.results.values()),
        seconds=seconds,
        figures=last.figures,
        samples=last.samples,
        remark=last.remark,
        report=last.report,
        state_path=last.state_path,
        sampler_path=last.sampler_path,
        next_command=resume if is_interrupted else last.next_command,
        stopped=state.interrupt.reason if is_interrupted else None,
    )
    metrics = {
        f"{name}/{key}": value for name, result in state.results.items() for key, value in result.metrics.items()
    }
    artifacts = {
        "folder": str(state.path),
        **{f"{name}/{key}": value for name, result in state.results.items() for key, value in result.artifacts.items()},
    }
    return RunResult(state=state, metrics=metrics, artifacts=artifacts, summary=summary)
