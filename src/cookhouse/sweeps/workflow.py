"""The workflow of a sweep: runs that differ in their settings, on one service, and the best of them registered."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cookhouse.algorithms import Body, RunContext, Stage, Workflow, register_run, stage
from cookhouse.files import write_whole
from cookhouse.registry import Descent
from cookhouse.runs import RunFolder, RunResult, open_folder
from cookhouse.runs.names import METRICS_FILE
from cookhouse.sweeps.body import HalvedRuns, SweepRuns
from cookhouse.sweeps.record import EXPERIMENT_FILE, SweepRecord, part_names, write_page
from cookhouse.sweeps.settings import SweepSettings
from cookhouse.sweeps.state import SweepState
from cookhouse.telemetry import Values, metrics_at
from cookhouse.training.clients.session import close_service
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, CheckpointFile, named_by_run
from cookhouse.workflows.pipeline import RunChild, cleanup, close_folder

DescentOf = Callable[[Mapping[str, Any]], Descent]
"""Of the settings of a run, how what it trains comes from what it starts from."""


def sweep_workflow(
    config: SweepSettings, run_child: RunChild, descent_of: DescentOf, document: str
) -> Workflow[SweepState]:
    """The runs, each in a folder of its own below the sweep's; one that has finished before is not run again."""
    runs = dict(zip(part_names(config.runs), config.runs, strict=True))
    kind = SweepRuns if config.min_steps is None else HalvedRuns

    async def run(parts: Sequence[Stage], state: SweepState) -> bool:
        del parts
        return await kind(state=state, run_child=run_child).run()

    return Workflow(
        name="sweep",
        state_class=SweepState,
        inputs={"config": config, "document": document, "runs": runs},
        setup=(init_folder,),
        body=Body(title="runs", children=tuple(runs), run=run, writes=("record",)),
        final=(register_best(descent_of),),
        cleanup=cleanup,
    )


@stage(doing="opening the folder", leaves_files=True)
async def init_folder(context: RunContext, document: str) -> RunFolder:
    """Open the folder that the runs' own are in."""
    folder = await asyncio.to_thread(open_folder, context.folder, context.choice, write_page)
    context.closing.push_async_callback(close_folder, context, folder)
    await asyncio.to_thread(write_whole, folder.path / EXPERIMENT_FILE, document)
    return folder


def register_best(descent_of: DescentOf) -> Stage:
    """The stage that registers the weights of the best run, where a name was given and every run has finished."""

    async def register(
        context: RunContext,
        config: SweepSettings,
        runs: Mapping[str, Mapping[str, Any]],
        folder: RunFolder,
        record: SweepRecord,
        results: dict[str, RunResult[Any]],
    ) -> str | None:
        best = record.table.best
        if best is None:
            return None
        path = folder.path / best.name
        kept = record.records[best.name].config
        settings = {**kept["config"], "registered_model_name": config.registered_model_name}
        spec = replace(context.folder, path=path, config=settings, free_fields=kept["free_on_resume"])
        saved = named_by_run(CheckpointFile(path / CHECKPOINTS_FILE).read())[0]
        metrics: Values = results[best.name].metrics
        if not saved.final:
            metrics = metrics_at(path / METRICS_FILE, saved.step)
        trained = replace(context, recipe=config.recipe, folder=spec)
        service = await context.connect()
        try:
            version = await register_run(trained, saved, metrics, descent_of(runs[best.name]), service=service)
        finally:
            await close_service(service, "success")
        return version.id

    return Stage(
        name="register_best",
        doing="registering the best model",
        function=register,
        needs=("service",),
        uses=("registry",),
        when=lambda context, config, errors: (
            config.registered_model_name is not None and context.registry is not None and not errors
        ),
    )
