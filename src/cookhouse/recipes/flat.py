"""Flat recipes: training written out in one file, for people to read. What fits such a file among the other recipes.

A flat module holds `Config`; `resolve(config)`; `load(config)`, the renderer and what each step trains on, found
without a service; and `train(config, connect)`, which writes metrics.jsonl and gives the tinker:// path of the trained
weights. Its run cannot be resumed: Ctrl-C ends it at once.
"""

import asyncio
import math
import shlex
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import chz

from cookhouse.errors import InputError
from cookhouse.recipes.training_config import MAY_BE_0, check_update, new_log_path

if TYPE_CHECKING:
    from cookhouse.training import Connect, Service
    from cookhouse.workflows import DryRunReport, FolderSpec, RunFolder, RunResult

C = TypeVar("C")


def settle(recipe: str, config: C, **chosen: Any) -> C:
    """The config with what was chosen, and with a run folder.

    Raises:
        InputError: a number is out of range.
    """
    settings = chz.asdict(config)
    for name, value in settings.items():
        least = 0 if name in ("seed", "lora_rank") else 1  # rank 0 trains all weights
        if isinstance(value, int) and not isinstance(value, bool) and value < least:
            raise InputError(f"{name} is {value}; it must be at least {least}")
        if isinstance(value, float) and name not in MAY_BE_0 and not 0 < value < math.inf:
            raise InputError(f"{name} is {value}; it must be a positive number")
    check_update(config)
    settled: C = chz.replace(config, **chosen, log_path=settings["log_path"] or new_log_path(recipe))
    return settled


async def execute(recipe: str, module: ModuleType, config: Any, *, connect: "Connect", **_: Any) -> "RunResult":
    """Train as the module says, in a run folder. Raises as `cookhouse.recipes.run`."""
    from cookhouse.training import SessionStatus, service_errors
    from cookhouse.training.session import close_service
    from cookhouse.workflows import FolderChoice, open_folder

    spec = _folder_spec(recipe, config)
    start = time.monotonic()
    folders: list[RunFolder] = []
    services: list[Service] = []

    async def connect_late() -> "Service":
        # The module has read its data by now: what is wrong with that leaves no folder behind.
        folders.append(open_folder(spec, FolderChoice.CREATE))
        services.append(await connect())
        return services[0]

    status: SessionStatus = "errored"
    try:
        with service_errors(f"running {recipe}"):
            sampler_path = await module.train(config, connect_late)
        status = "success"
    except (InputError, asyncio.CancelledError):
        for folder in folders:
            folder.discard()
        raise
    finally:
        for service in services:
            await close_service(service, status)
        for folder in folders:
            folder.close()
    return _result(spec, folders[0], sampler_path, time.monotonic() - start)


def dry_run(recipe: str, module: ModuleType, config: Any) -> "DryRunReport":
    """Load what a run would, and report it. Raises as `cookhouse.recipes.dry_run`."""
    from cookhouse.workflows import DryRunReport

    settled = module.resolve(config)
    spec = _folder_spec(recipe, settled)
    _, batches = module.load(settled)
    facts = {
        "code": str(module.__file__),
        "tokenizer": settled.model_name,
        "renderer": settled.renderer_name,
        "steps": f"{len(batches):,} in all",
    }
    return DryRunReport(recipe=recipe, config=spec.config, folder=spec.path, facts=facts)


def _folder_spec(recipe: str, config: Any) -> "FolderSpec":
    from cookhouse.workflows import FolderSpec

    path = Path(config.log_path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f"log_path {path} exists, and {recipe} never continues a run; choose another")
    settings = chz.asdict(config)
    return FolderSpec(path=path, recipe=recipe, config=settings, seed=config.seed, behavior="raise", free_fields=())


def _result(spec: "FolderSpec", folder: "RunFolder", sampler_path: str, seconds: float) -> "RunResult":
    """Records the weights, so that `cookhouse sample --run` finds them, and says what there is."""
    from cookhouse.telemetry import read_metrics
    from cookhouse.training import Checkpoint
    from cookhouse.workflows import RunResult, RunSummary
    from cookhouse.workflows.report_page import write_report

    rows = read_metrics(folder.metrics)
    count = len(rows)
    last = Checkpoint(
        name="final", epoch=0, batch=count, step=count, final=True, state_path=None, sampler_path=sampler_path
    )
    folder.checkpoints.append(last)
    summary = RunSummary(
        recipe=spec.recipe,
        model_name=spec.config["model_name"],
        folder=spec.path,
        is_interrupted=False,
        num_steps=count,
        total_steps=count,
        seconds=seconds,
        figures=(),
        samples=(),
        report=write_report(spec.path),
        state_path=None,
        sampler_path=sampler_path,
        next_command=f"cookhouse sample --run {shlex.quote(str(spec.path))}",
    )
    artifacts = {"folder": str(spec.path), "report": str(summary.report), "sampler_path": sampler_path}
    return RunResult(state=None, metrics=rows[-1], artifacts=artifacts, summary=summary)
