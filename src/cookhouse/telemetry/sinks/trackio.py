"""Trackio, by its own SDK: local files (TRACKIO_DIR), a Space of the hub (TRACKIO_SPACE_ID) or a server."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import trackio

from cookhouse.telemetry.record import Values
from cookhouse.telemetry.sinks.tracked import TrackerRun, TrackerSink, described, read_tracker_run, run_name


class TrackioTracker:
    """A run of Trackio, resumed if there is one to go on in."""

    settling_seconds = 5.0

    def __init__(self, run: TrackerRun, config: Mapping[str, Any]) -> None:
        self._run = trackio.init(
            project=run.project,
            name=run.name,
            resume="allow" if run.id else "never",
            config=dict(config),
            embed=False,
        )
        self.run = replace(run, id=self._run.id)

    def log(self, step: int, values: Values) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, status: str) -> None:
        del status  # Trackio knows none
        self._run.finish()


def make_sink(folder: Path, settings: Mapping[str, Any]) -> TrackerSink:
    """The sink `trackio`. Raises what the library raises."""
    run = read_tracker_run(folder, "trackio") or TrackerRun(
        id="",
        name=_own_name(folder, settings),
        project=settings.get("wandb_project") or os.environ.get("TRACKIO_PROJECT") or "cookhouse",
    )
    return TrackerSink("trackio", folder, TrackioTracker(run, described(folder, settings)))


def _own_name(folder: Path, settings: Mapping[str, Any]) -> str:
    """Trackio goes on in a run by its name, and folders of one name are many."""
    name = run_name(folder, settings)
    return name if settings.get("wandb_name") else f"{name}-{secrets.token_hex(2)}"
