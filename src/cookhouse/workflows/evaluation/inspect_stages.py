"""The stages of an evaluation by tasks of Inspect AI, which is imported when there are some."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cookhouse.algorithms.stages.stage import stage
from cookhouse.files import write_whole
from cookhouse.naming import names_in
from cookhouse.report import transcripts_page
from cookhouse.runs import RunFolder
from cookhouse.runs.names import INSPECT_FOLDER
from cookhouse.settings import EvalSettings, has_default
from cookhouse.training import service_errors
from cookhouse.workflows.evaluation.state import EvaluationState, ItemProgress

if TYPE_CHECKING:
    from cookhouse.evals.inspect.logs import InspectResult
    from cookhouse.evals.inspect.tasks import InspectTask


def has_inspect_tasks(config: EvalSettings) -> bool:
    """True if tasks of Inspect AI are named."""
    return bool(names_in(config.inspect))


async def inspect_tasks(config: EvalSettings) -> "Sequence[InspectTask]":
    """The tasks that are named, with their samples; none if none are.

    Raises:
        InputError: as `find_tasks`.
    """
    if not has_inspect_tasks(config):
        return ()
    from cookhouse.evals.inspect.tasks import find_tasks

    return await find_tasks(names_in(config.inspect), config.limit, _epochs(config))


def inspect_results(folder: Path, tasks: "Sequence[InspectTask]") -> "list[InspectResult]":
    """Of the tasks that are finished, in the run directory of one evaluation."""
    if not tasks:
        return []
    from cookhouse.evals.inspect.tasks import finished_result

    found = [finished_result(folder / INSPECT_FOLDER, task) for task in tasks]
    return [result for result in found if result is not None]


@stage(doing="loading the tasks", reads=("config",), writes=("tasks",))
async def load_inspect_tasks(state: EvaluationState) -> None:
    """Find the tasks, and their samples."""
    state.tasks = await inspect_tasks(state.config)


@stage(doing="running the tasks", reads=("config", "tasks", "answerer", "folder"), writes=("inspected",))
async def run_inspect_tasks(state: EvaluationState) -> None:
    """Run every task that has not been; asked to stop, it drops the samples that are asked and keeps the others."""
    from cookhouse.evals.inspect.opening import model_of
    from cookhouse.evals.inspect.tasks import InspectOptions, run_task

    config = state.config
    options = InspectOptions(
        seed=config.seed,
        epochs=_epochs(config),
        temperature=None if has_default(config, "temperature") else config.temperature,
        max_tokens=config.max_tokens,
        system_prompt=config.system_prompt,
        max_concurrent=config.max_concurrent_requests,
    )
    api = await model_of(state.answerer, config.weights or config.model_name)
    with state.interrupt.deferred(), service_errors("running an Inspect task"):
        for task in state.tasks:
            if state.interrupt.is_requested:
                return
            with state.telemetry.span(task.name):
                result = await run_task(
                    task,
                    api,
                    options,
                    state.folder.path / INSPECT_FOLDER,
                    on_sample=ItemProgress(state.telemetry, task.name, len(task.asked_ids) * task.epochs),
                    stopped=state.interrupt.requested,
                )
            if result is not None:
                state.inspected.append(result)


def write_inspected(state: EvaluationState) -> None:
    """A page for each task of what was asked and answered."""
    for result in state.inspected:
        title = f"{result.name}: {state.config.weights or state.config.model_name}"
        log = f"{INSPECT_FOLDER}/{result.log.name}"
        page = transcripts_page(result.items, result.attempts, title=title, log=log)
        write_whole(page_of(state.folder, result.name), page)


def page_of(folder: RunFolder, name: str) -> Path:
    """Path of the page of a benchmark or a task."""
    return folder.evaluations / f"{name.replace('/', '-')}.html"


def logs_remark(config: EvalSettings, folder: Path) -> str | None:
    """Remark on how to read Inspect AI's own logs in a folder, if tasks of its were asked."""
    if not has_inspect_tasks(config):
        return None
    return f"Inspect AI's own logs: inspect view --log-dir {shlex.quote(str(folder))}"


def _epochs(config: EvalSettings) -> int | None:
    return config.num_samples if config.num_samples > 1 else None
