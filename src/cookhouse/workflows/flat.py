"""A flat file of training as a workflow: what it loads, what it trains, and where its weights are in the end.

The file has a config, `load(config)`, which finds out without a service what each step trains on, and
`train(config, loaded, folder, connect)`, which writes metrics.jsonl and gives the tinker:// path of the trained
weights. Its run cannot be resumed: Ctrl-C ends it at once.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import chz

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.algorithms.base.facts import RatedConfig, settings_notes, steps_notes
from cookhouse.algorithms.stages.body import Stages
from cookhouse.algorithms.stages.registering import is_registered, register_run
from cookhouse.algorithms.stages.sinks import start_sinks
from cookhouse.algorithms.stages.stage import Stage, stage
from cookhouse.algorithms.stages.state import RunState
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.errors import InputError
from cookhouse.registry import Descent, ModelVersion
from cookhouse.runs import FolderChoice, RunFolder, RunResult, RunSummary, open_folder
from cookhouse.runs.names import REPORT_FILE
from cookhouse.settings import OptimizerSettings
from cookhouse.settings.defaults import has_default
from cookhouse.telemetry import events, read_metrics
from cookhouse.training import AdamSchedule, Connect, ServiceClient, service_errors
from cookhouse.training.clients.session import close_service
from cookhouse.weights.checkpoints import Checkpoint

Loaded = tuple[Any, Sequence[Any]] | tuple[Any, Sequence[Any], Sequence[str]]
"""A renderer, what each step trains on, and what a person should know of that, a sentence each."""


@dataclass(kw_only=True)
class FlatState(RunState):
    """State that the stages of a flat file share."""

    config: RatedConfig
    file: Path
    descent: Descent
    """What the trained weights are to the base model."""
    loaded: Loaded = field(init=False)
    notes: list[str] = field(default_factory=list)
    """What a person should know before it is trained."""
    folder: RunFolder = field(init=False)
    service: ServiceClient = field(init=False)
    sampler_path: str = field(init=False)
    registered_model: ModelVersion | None = None


def flat_workflow(
    config: Any,
    file: Path,
    load: Callable[[Any], Any],
    train: Callable[[Any, Any, Path, Connect], Awaitable[str]],
    descent: Descent = Descent.FINE_TUNED_FROM,
) -> Workflow[FlatState]:
    """The stages of a flat file."""

    @stage(doing="reading the data", reads=("config",), writes=("loaded", "notes"))
    async def load_dataset(state: FlatState) -> None:
        if state.context.choice is FolderChoice.RESUME:
            raise InputError(
                f"log_path {state.context.folder.path} exists, and {state.context.recipe} never continues a run; "
                "choose another, or set behavior_if_log_dir_exists=delete"
            )
        state.loaded = await asyncio.to_thread(load, state.config)
        if _fit_batch(state):
            state.loaded = await asyncio.to_thread(load, state.config)
        state.notes += [note for notes in state.loaded[2:] for note in notes]
        if isinstance(state.config, OptimizerSettings):
            schedule = AdamSchedule(settings=state.config, total_steps=len(state.loaded[1]))
            schedule.params(0)  # refuses before anything is opened
            state.notes += schedule.notes
        state.notes += await asyncio.to_thread(_length_notes, state.config, load)
        state.notes += await asyncio.to_thread(partial(settings_notes, state.config, by_reward=True))

    async def train_in_folder(state: FlatState) -> None:
        for note in state.notes:
            state.telemetry.event(events.DATA_NOTE, text=note)
        connect = state.context.connect

        async def connect_and_keep() -> ServiceClient:
            service = state.service = await connect()
            state.closing.push_async_callback(lambda: close_service(service, state.status))
            return service

        with service_errors(f"running {state.context.recipe}"):
            state.sampler_path = await train(state.config, state.loaded, state.folder.path, connect_and_keep)

    training = Stage(
        name="train",
        doing="training",
        run=train_in_folder,
        reads=("config", "notes", "loaded", "folder"),
        writes=("sampler_path", "service"),
        needs=("service",),
    )
    return Workflow(
        name="flat",
        state_class=FlatState,
        start=lambda context: FlatState(context=context, config=config, file=file, descent=descent),
        setup=(load_dataset, init_folder),
        body=Stages(parts=(training,)),
        final=(save_final, register_model),
        cleanup=cleanup,
        result=_result,
        facts=_facts,
        notes=lambda state: state.notes,
    )


def _length_notes(config: Any, load: Callable[[Any], Any]) -> list[str]:
    """Of a file that has epochs, and somebody set how many."""
    if "num_epochs" not in chz.chz_fields(config) or has_default(config, "num_epochs") or config.max_steps is None:
        return []
    return steps_notes(config, len(load(chz.replace(config, num_epochs=1, max_steps=None))[1]))


def _fit_batch(state: FlatState) -> bool:
    """True if the data are to be read anew, in batches of another size."""
    config: Any = state.config
    if "batch_size" not in chz.chz_fields(config):
        return False
    num_items = sum(map(len, state.loaded[1]))
    num_rows = num_items // getattr(config, "num_epochs", 1)
    before: int = config.batch_size
    return fit_batch(state, batches_of(num_rows), f"{num_rows:,} rows") != before


@stage(doing="opening the run directory", writes=("folder",), leaves_files=True)
async def init_folder(state: FlatState) -> None:
    """Make the run directory anew."""
    state.folder = await asyncio.to_thread(open_folder, state.context.folder, state.context.choice)
    state.closing.push_async_callback(_close_folder, state)
    state.telemetry.add(state.folder.run_json)
    await start_sinks(state.context, state.folder.path)
    state.closing.callback(_report_rows, state)


def _report_rows(state: FlatState) -> None:
    """The file writes its metrics by itself: sinks hear of them at the end."""
    for row in read_metrics(state.folder.metrics):
        state.telemetry.metrics(row["step"], {name: value for name, value in row.items() if name != "step"})
    state.telemetry.event(events.RUN_END, status=state.status)


async def _close_folder(state: FlatState) -> None:
    await asyncio.to_thread(state.folder.end, state.status, state.error)
    state.folder.close()
    if isinstance(state.error, InputError | asyncio.CancelledError):
        state.folder.discard()


@stage(doing="saving the weights", reads=("folder", "sampler_path"))
async def save_final(state: FlatState) -> None:
    """Record the weights, so that `cookhouse sample RUN` finds them."""
    await asyncio.to_thread(state.folder.begin)  # what it is given may be refused as late as in its training
    count = len(read_metrics(state.folder.metrics))
    state.folder.checkpoints.append(
        Checkpoint(
            name="final", epoch=0, batch=count, step=count, final=True, state_path=None, sampler_path=state.sampler_path
        )
    )


@stage(
    doing="registering the model",
    reads=("descent", "folder", "service"),
    writes=("registered_model",),
    uses=("registry",),
    when=lambda state: is_registered(state.context),
)
async def register_model(state: FlatState) -> None:
    """Register the trained weights under the name that the run was given."""
    last = read_metrics(state.folder.metrics)[-1]
    metrics = {name: value for name, value in last.items() if name != "step"}
    saved = state.folder.checkpoints.read()[-1]
    registered = await register_run(state.context, saved, metrics, state.descent, service=state.service)
    state.registered_model = registered


@stage(doing="ending the session")
async def cleanup(state: FlatState) -> None:
    """End the session and stop logging."""
    await state.closing.aclose()


def _result(state: FlatState, seconds: float) -> RunResult[FlatState]:
    rows = read_metrics(state.folder.metrics)
    path = state.folder.path
    report = path / REPORT_FILE
    summary = RunSummary(
        recipe=state.context.recipe,
        model_name=state.config.model_name,
        folder=path,
        is_interrupted=False,
        num_steps=len(rows),
        total_steps=len(rows),
        seconds=seconds,
        figures=(),
        samples=(),
        report=report if report.exists() else None,
        state_path=None,
        sampler_path=state.sampler_path,
        next_command=f"cookhouse sample {shlex.quote(str(path))}",
        registered_model=None if state.registered_model is None else state.registered_model.id,
    )
    artifacts = {"folder": str(path), "report": str(report), "sampler_path": state.sampler_path}
    return RunResult(state=state, metrics=rows[-1], artifacts=artifacts, summary=summary)


def _facts(state: FlatState) -> dict[str, str]:
    return {
        "code": str(state.file),
        "tokenizer": state.config.model_name,
        "renderer": state.config.renderer_name,
        "steps": f"{len(state.loaded[1]):,} in all",
    }
