"""Runs one after another as one: each has a folder below its parent's, and one that has finished is not run again."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse import algorithms as alg
from cookhouse.runs import RunFolder, RunResult, RunSummary, open_folder
from cookhouse.settings import RunSettings

RunChild = Callable[[alg.RunContext, str, Path, Mapping[str, Any]], Awaitable[RunResult[Any]]]
"""Runs a recipe in a folder, with settings, for the run of that context."""
PrepareChild = Callable[[alg.RunContext, str, Path, Mapping[str, Any]], Awaitable[None]]
"""Prepares the same, and runs nothing."""


@dataclass(frozen=True, kw_only=True)
class ChildRun:
    """Run of a pipeline: a recipe by name, and its settings as a function of the folders of the runs before it."""

    name: str
    recipe: str
    settings: Callable[[Mapping[str, Path]], Mapping[str, Any]]
    """A run directory names weights: `{"load_checkpoint_path": str(folders["sft"])}` hands them on."""


@dataclass(kw_only=True)
class PipelineRunState(alg.RunState):
    """State that the stages of a pipeline share."""

    config: RunSettings
    runs: Sequence[ChildRun]
    folder: RunFolder = field(init=False)
    """The run directory; each run has one below it."""
    results: dict[str, RunResult[Any]] = field(default_factory=dict)
    """Of the runs that are over, by name."""

    def facts(self) -> Mapping[str, str]:
        return {run.name: run.recipe for run in self.runs}

    def result(self, seconds: float) -> RunResult[Any]:
        """The figures of the last run that was begun, and the metrics of each under its name."""
        context, results, path = self.context, self.results.values(), self.folder.path
        last, is_interrupted = list(results)[-1].summary, context.status == "interrupted"
        resume = f"cookhouse {context.command} log_path={shlex.quote(str(path))} behavior_if_log_dir_exists=resume"
        summary = RunSummary(
            recipe=context.recipe,
            model_name=self.config.model_name,
            folder=path,
            is_interrupted=is_interrupted,
            num_steps=sum(result.summary.num_steps for result in results),
            total_steps=sum(result.summary.total_steps for result in results),
            seconds=seconds,
            figures=last.figures,
            samples=last.samples,
            remark=last.remark,
            findings=last.findings,
            report=last.report,
            state_path=last.state_path,
            sampler_path=last.sampler_path,
            next_command=resume if is_interrupted else last.next_command,
            stopped=context.interrupt.reason if is_interrupted else None,
        )
        metrics = by_run(self.results, lambda result: result.metrics)
        artifacts = {"folder": str(path), **by_run(self.results, lambda result: result.artifacts)}
        return RunResult(state=self, metrics=metrics, artifacts=artifacts, summary=summary)


def by_run(
    results: Mapping[str, RunResult[Any]], values: Callable[[RunResult[Any]], Mapping[str, Any]]
) -> dict[str, Any]:
    """Values of several runs, each under the name of its run, as in `sft/test/nll`."""
    return {f"{name}/{key}": value for name, result in results.items() for key, value in values(result).items()}


def pipeline_workflow(
    config: RunSettings, runs: Sequence[ChildRun], run_child: RunChild, prepare_child: PrepareChild
) -> alg.Workflow[PipelineRunState]:
    """The runs in order; a pipeline that is resumed goes on in the first that has not finished."""

    async def run(parts: Sequence[alg.Stage], state: PipelineRunState) -> bool:
        del parts
        for each in runs:
            if state.results and state.context.interrupt.is_requested:
                return False
            settings = each.settings({name: result.summary.folder for name, result in state.results.items()})
            result = await run_child(state.context, each.recipe, state.folder.path / each.name, settings)
            state.results[each.name] = result
            await asyncio.to_thread(state.folder.begin)
            if result.summary.is_interrupted:
                return False
        return True

    async def prepare(state: PipelineRunState) -> None:
        """Of the runs, those that take nothing from others: nothing of what these leave is there."""
        for each in runs:
            try:
                settings = each.settings(_NotYet())
            except _NotYetError:
                continue
            await prepare_child(state.context, each.recipe, state.context.folder.path / each.name, settings)

    return alg.Workflow(
        name="pipeline",
        state_class=PipelineRunState,
        inputs={"config": config, "runs": runs},
        setup=(init_folder,),
        body=alg.Body(title="runs", children=tuple(each.name for each in runs), run=run, prepare=prepare),
        cleanup=cleanup,
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


@alg.stage(doing="opening the folder", leaves_files=True)
async def init_folder(context: alg.RunContext) -> RunFolder:
    """Open the folder that the runs' own are in."""
    folder = await asyncio.to_thread(open_folder, context.folder, context.choice)
    context.closing.push_async_callback(close_folder, context, folder)
    return folder


async def close_folder(context: alg.RunContext, folder: RunFolder) -> None:
    """Close the folder of runs; one in which no run has left anything goes."""
    await asyncio.to_thread(folder.end, context.status, context.error)
    folder.close()
    if not any(path.is_dir() for path in folder.path.iterdir()):
        folder.discard()


@alg.stage(doing="closing the folder")
async def cleanup(context: alg.RunContext) -> None:
    """Stop logging; a folder in which no run has left anything goes."""
    await context.closing.aclose()
