"""The stages of an evaluation by tasks of Inspect AI, which is imported when there are some."""

from collections.abc import Sequence
from pathlib import Path

from cookhouse import algorithms as alg
from cookhouse.evals import Answerer
from cookhouse.evals.inspect.records import InspectResult, InspectTask
from cookhouse.naming import names_in
from cookhouse.runs import RunFolder
from cookhouse.runs.names import INSPECT_FOLDER
from cookhouse.settings import EvalSettings, has_default
from cookhouse.training import service_errors
from cookhouse.workflows.evaluation.state import ItemProgress, has_inspect_tasks


async def inspect_tasks(config: EvalSettings) -> Sequence[InspectTask]:
    """The tasks that are named, with their samples; none if none are.

    Raises:
        InputError: as `find_tasks`.
    """
    if not has_inspect_tasks(config):
        return ()
    from cookhouse.evals.inspect.tasks import find_tasks

    return await find_tasks(names_in(config.inspect), config.limit, _epochs(config))


def inspect_results(folder: Path, tasks: Sequence[InspectTask]) -> list[InspectResult]:
    """Of the tasks that are finished, in the run directory of one evaluation."""
    if not tasks:
        return []
    from cookhouse.evals.inspect.tasks import finished_result

    found = [finished_result(folder / INSPECT_FOLDER, task) for task in tasks]
    return [result for result in found if result is not None]


@alg.stage(doing="loading the tasks")
async def load_inspect_tasks(config: EvalSettings) -> Sequence[InspectTask]:
    """Find the tasks, and their samples."""
    return await inspect_tasks(config)


@alg.stage(doing="running the tasks")
async def run_inspect_tasks(
    context: alg.RunContext, config: EvalSettings, tasks: Sequence[InspectTask], answerer: Answerer, folder: RunFolder
) -> list[InspectResult]:
    """Run every task that has not been; asked to stop, it drops the samples that are asked and keeps the others."""
    from cookhouse.evals.inspect.opening import model_of
    from cookhouse.evals.inspect.tasks import InspectOptions, run_task

    options = InspectOptions(
        seed=config.seed,
        epochs=_epochs(config),
        temperature=None if has_default(config, "temperature") else config.temperature,
        max_tokens=config.max_tokens,
        system_prompt=config.system_prompt,
        max_concurrent=config.max_concurrent_requests,
    )
    api = await model_of(answerer, config.weights or config.model_name)
    found: list[InspectResult] = []
    with context.interrupt.deferred(), service_errors("running an Inspect task"):
        for task in tasks:
            if context.interrupt.is_requested:
                break
            with context.telemetry.span(task.name):
                result = await run_task(
                    task,
                    api,
                    options,
                    folder.path / INSPECT_FOLDER,
                    on_sample=ItemProgress(context.telemetry, task.name, len(task.asked_ids) * task.epochs),
                    stopped=context.interrupt.requested,
                )
            if result is not None:
                found.append(result)
    return found


def _epochs(config: EvalSettings) -> int | None:
    return config.num_samples if config.num_samples > 1 else None
