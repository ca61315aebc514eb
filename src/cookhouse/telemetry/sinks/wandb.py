"""Weights & Biases, by its own SDK. WANDB_MODE=offline needs no account; its files lie in the run directory."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from cookhouse.errors import InputError
from cookhouse.telemetry.record import Values
from cookhouse.telemetry.sinks.fitted_names import wandb_name
from cookhouse.telemetry.sinks.named import CheckedSink
from cookhouse.telemetry.sinks.tracked import TrackerRun, TrackerSink, described, read_tracker_run, run_name

_EXIT_CODES = {"success": 0, "interrupted": 130}


class WandbTracker:
    """A run of W&B, resumed if there is one to go on in."""

    settling_seconds = 5.0

    def __init__(self, run: TrackerRun, folder: Path, config: Mapping[str, Any]) -> None:
        _check_login()
        self.run = run
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            id=run.id,
            resume="allow",
            dir=folder,
            config=dict(config),
            allow_val_change=True,
            reinit="create_new",
            settings=wandb.Settings(console="off"),  # it would copy what the progress line draws
        )

    def log(self, step: int, values: Values) -> None:
        self._run.log({wandb_name(name): value for name, value in values.items()}, step=step)

    def finish(self, status: str) -> None:
        self._run.finish(exit_code=_EXIT_CODES.get(status, 1))


def make_sink(folder: Path, settings: Mapping[str, Any]) -> TrackerSink:
    """The sink `wandb`.

    Raises:
        InputError: nobody is logged in.
        wandb.Error: the run cannot be made.
    """
    run = read_tracker_run(folder, "wandb") or TrackerRun(
        id=secrets.token_hex(4),
        name=run_name(folder, settings),
        project=settings.get("wandb_project") or os.environ.get("WANDB_PROJECT") or "cookhouse",
    )
    return TrackerSink("wandb", folder, WandbTracker(run, folder, described(folder, settings)))


def _check_login() -> None:
    """Raises `InputError` where `wandb.init` would ask for a key."""
    mode = wandb.setup().settings.mode
    if mode in ("online", "shared") and not wandb.login(prompt=False):
        raise InputError("W&B has no login; run `wandb login`, set WANDB_API_KEY, or set WANDB_MODE=offline")


SINK = CheckedSink(make=make_sink, check=_check_login)
