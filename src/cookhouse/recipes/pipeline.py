"""Recipes that consist of other recipes, run one after another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cookhouse.recipes.config import make_config
from cookhouse.recipes.recipe import Recipe, find_recipe
from cookhouse.recipes.resolved import resolved
from cookhouse.recipes.run_recipe import run_async
from cookhouse.settings import RunSettings

if TYPE_CHECKING:
    from cookhouse.runs import RunResult
    from cookhouse.telemetry import Sink, Telemetry
    from cookhouse.workflows import ChildRun, PipelineRunState, RunContext, Workflow

C = TypeVar("C", bound=RunSettings)


def pipeline_recipe(
    *,
    name: str,
    description: str,
    config_class: type[C],
    runs: "Callable[[C], Sequence[ChildRun]]",
    aliases: tuple[str, ...] = (),
) -> Recipe[C]:
    """A recipe of runs in order, each in a folder of its own below the pipeline's.

    Weights are handed on by naming the folder of an earlier run. Resumed, it goes on in the first run that has not
    finished, and runs none again that has.
    """

    def workflow(config: C) -> "Workflow[PipelineRunState]":
        from cookhouse.workflows import pipeline_workflow

        return pipeline_workflow(config, runs(config), run_child, prepare_child)

    return Recipe(name=name, description=description, config_class=config_class, workflow=workflow, aliases=aliases)


async def run_child(
    context: "RunContext",
    recipe: str,
    folder: Path,
    settings: Mapping[str, Any],
    *,
    relay: "Callable[[Telemetry], Sink] | None" = None,
) -> "RunResult[Any]":
    """Run a recipe in a folder as a part of another run, or go on with it there, or read what it left when it finished;
    fits `cookhouse.workflows.RunChild`.

    `relay` makes the sink that reports the whole of it; default: one that hands on everything.
    """
    from cookhouse.runs import read_result
    from cookhouse.telemetry import Relay

    finished = read_result(folder)
    if finished is not None:
        return finished
    adapters = replace(context.adapters, sinks=[(relay or Relay)(context.telemetry)], blobs=None)
    return await run_async(recipe, _placed(settings, folder), adapters=adapters, interrupt=context.interrupt)


async def prepare_child(context: "RunContext", recipe: str, folder: Path, settings: Mapping[str, Any]) -> None:
    """Prepare what `run_child` would run; nothing, where that has finished. Fits `cookhouse.workflows.PrepareChild`."""
    from cookhouse.runs import read_result
    from cookhouse.telemetry import Telemetry
    from cookhouse.training import Interrupt
    from cookhouse.workflows import dry_run_workflow

    if read_result(folder) is not None:
        return
    adapters = replace(context.adapters, sinks=None, blobs=None)
    config = make_config(find_recipe(recipe), _placed(settings, folder), adapters.service)
    run = resolved(recipe, config, adapters, Telemetry(), Interrupt())
    await dry_run_workflow(run.workflow, run.context)


def _placed(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    # A folder that is not there is made, one that a run has begun in is gone on with.
    return {**settings, "log_path": str(folder), "behavior_if_log_dir_exists": "resume"}
