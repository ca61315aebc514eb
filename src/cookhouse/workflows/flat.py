"""A flat file of training as a workflow: what it loads, what it trains, and where its weights are in the end.

The file has a config, `load(config)`, which finds out without a service what each step trains on, and
`train(config, loaded, folder, connect)`, which writes metrics.jsonl and gives the tinker:// path of the trained
weights. Its run cannot be resumed: Ctrl-C ends it at once.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import chz

from cookhouse import algorithms as alg
from cookhouse.errors import InputError
from cookhouse.registry import Descent, ModelVersion
from cookhouse.runs import (
    FolderChoice,
    RunFolder,
    RunResult,
    RunSummary,
    open_folder,
    read_findings,
    read_history,
)
from cookhouse.runs.names import REPORT_FILE
from cookhouse.settings import OptimizerSettings, has_default
from cookhouse.telemetry import events, read_metrics
from cookhouse.training import Connect, ServiceClient, close_service, service_errors
from cookhouse.weights.checkpoints import Checkpoint

Loaded = tuple[Any, Sequence[Any]] | tuple[Any, Sequence[Any], Sequence[str]]
"""A renderer, what each step trains on, and what a person should know of that, a sentence each."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Trained weights, by their `tinker://` path, and the service that has them."""

    service: ServiceClient
    sampler_path: str


@dataclass(kw_only=True)
class FlatState(alg.RunState):
    """State that the stages of a flat file share."""

    config: alg.RatedConfig
    file: Path
    loaded: Loaded = field(init=False)
    folder: RunFolder = field(init=False)
    trained: Trained = field(init=False)
    registered_model: ModelVersion | None = None

    def facts(self) -> Mapping[str, str]:
        return {
            "code": str(self.file),
            "tokenizer": self.config.model_name,
            "renderer": self.config.renderer_name,
            "steps": f"{len(self.loaded[1]):,} in all",
        }

    def result(self, seconds: float) -> RunResult[Any]:
        rows = read_metrics(self.folder.metrics)
        path, sampler_path = self.folder.path, self.trained.sampler_path
        report = path / REPORT_FILE
        summary = RunSummary(
            recipe=self.context.recipe,
            model_name=self.config.model_name,
            folder=path,
            is_interrupted=False,
            num_steps=len(rows),
            total_steps=len(rows),
            seconds=seconds,
            figures=(),
            samples=(),
            findings=read_findings(path, self.context.folder.config, read_history(path)),
            report=report if report.exists() else None,
            state_path=None,
            sampler_path=sampler_path,
            next_command=f"cookhouse sample {shlex.quote(str(path))}",
            registered_model=None if self.registered_model is None else self.registered_model.id,
        )
        artifacts = {"folder": str(path), "report": str(report), "sampler_path": sampler_path}
        return RunResult(state=self, metrics=rows[-1], artifacts=artifacts, summary=summary)


def flat_workflow(
    config: Any,
    file: Path,
    load: Callable[[Any], Any],
    train: Callable[[Any, Any, Path, Connect], Awaitable[str]],
    descent: Descent = Descent.FINE_TUNED_FROM,
) -> alg.Workflow[FlatState]:
    """The stages of a flat file; `descent` is what the trained weights are to the base model."""

    @alg.stage(doing="reading the data")
    async def load_dataset(context: alg.RunContext, config: alg.RatedConfig) -> tuple[Loaded, alg.RatedConfig]:
        if context.choice is FolderChoice.RESUME:
            raise InputError(
                f"log_path {context.folder.path} exists, and {context.recipe} never continues a run; "
                "choose another, or set behavior_if_log_dir_exists=delete"
            )
        loaded: Loaded = await asyncio.to_thread(load, config)
        fitted = _fit_batch(context, config, loaded)
        if fitted is not config:
            config, loaded = fitted, await asyncio.to_thread(load, fitted)
        context.notes += [note for notes in loaded[2:] for note in notes]
        if isinstance(config, OptimizerSettings):
            schedule = alg.AdamSchedule(settings=config, total_steps=len(loaded[1]))
            schedule.params(0)  # refuses before anything is opened
            context.notes += schedule.notes
        context.notes += await asyncio.to_thread(_length_notes, config, load)
        context.notes += await asyncio.to_thread(partial(alg.settings_notes, config, by_reward=True))
        return loaded, config

    async def train_in_folder(
        context: alg.RunContext, config: alg.RatedConfig, loaded: Loaded, folder: RunFolder
    ) -> Trained:
        context.telemetry.notes(context.notes)
        services: list[ServiceClient] = []

        async def connect() -> ServiceClient:
            service = await context.connect()
            services.append(service)
            context.closing.push_async_callback(lambda: close_service(service, context.status))
            return service

        with service_errors(f"running {context.recipe}"):
            sampler_path = await train(config, loaded, folder.path, connect)
        return Trained(service=services[-1], sampler_path=sampler_path)

    return alg.Workflow(
        name="flat",
        state_class=FlatState,
        inputs={"config": config, "file": file},
        setup=(load_dataset, init_folder),
        body=alg.stages_in_order(
            alg.Stage(name="train", doing="training", function=train_in_folder, needs=("service",))
        ),
        final=(save_final, register_model(descent)),
        cleanup=alg.cleanup,
        descent=descent,
    )


def _length_notes(config: Any, load: Callable[[Any], Any]) -> list[str]:
    """Of a file that has epochs, and somebody set how many."""
    if "num_epochs" not in chz.chz_fields(config) or has_default(config, "num_epochs") or config.max_steps is None:
        return []
    return alg.steps_notes(config, len(load(chz.replace(config, num_epochs=1, max_steps=None))[1]))


def _fit_batch(context: alg.RunContext, config: Any, loaded: Loaded) -> Any:
    """The config, or one with another batch size, in which the data are to be read anew."""
    if "batch_size" not in chz.chz_fields(config):
        return config
    num_rows = sum(map(len, loaded[1])) // getattr(config, "num_epochs", 1)
    return alg.fit_batch(context, config, alg.batches_of(num_rows), f"{num_rows:,} rows")


@alg.stage(doing="opening the run directory", leaves_files=True)
async def init_folder(context: alg.RunContext) -> RunFolder:
    """Make the run directory anew."""
    folder = await asyncio.to_thread(open_folder, context.folder, context.choice)
    context.closing.push_async_callback(_close_folder, context, folder)
    context.telemetry.add(folder.run_json)
    await alg.start_sinks(context, folder.path)
    alg.watch_findings(context, folder)
    context.closing.callback(_report_rows, context, folder)
    return folder


def _report_rows(context: alg.RunContext, folder: RunFolder) -> None:
    """The file writes its metrics by itself: sinks hear of them at the end."""
    for row in read_metrics(folder.metrics):
        context.telemetry.metrics(row["step"], {name: value for name, value in row.items() if name != "step"})
    context.telemetry.event(events.RUN_END, status=context.status)


async def _close_folder(context: alg.RunContext, folder: RunFolder) -> None:
    await asyncio.to_thread(folder.end, context.status, context.error)
    folder.close()
    if isinstance(context.error, InputError | asyncio.CancelledError):
        folder.discard()


@alg.stage(doing="saving the weights")
async def save_final(folder: RunFolder, trained: Trained) -> None:
    """Record the weights, so that `cookhouse sample RUN` finds them."""
    await asyncio.to_thread(folder.begin)  # what it is given may be refused as late as in its training
    count, path = len(read_metrics(folder.metrics)), trained.sampler_path
    folder.checkpoints.append(
        Checkpoint(name="final", epoch=0, batch=count, step=count, final=True, state_path=None, sampler_path=path)
    )


def register_model(descent: Descent) -> alg.Stage:
    """The stage that registers the trained weights under the name that the run was given."""

    async def register(context: alg.RunContext, folder: RunFolder, trained: Trained) -> ModelVersion | None:
        last = read_metrics(folder.metrics)[-1]
        metrics = {name: value for name, value in last.items() if name != "step"}
        saved = folder.checkpoints.read()[-1]
        return await alg.register_run(context, saved, metrics, descent, service=trained.service)

    return alg.Stage(
        name="register_model",
        doing="registering the model",
        function=register,
        uses=("registry",),
        when=alg.is_registered,
    )
