"""Keeps run.json while a run is on: that a sitting began, what is told of it, and how it ended."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.runs.folder.choice import FolderSpec
from cookhouse.runs.history.machine import this_machine, versions
from cookhouse.runs.history.sittings import RunStatus, Sitting, over, read_history, read_sittings, sittings_text
from cookhouse.runs.names import REPORT_FILE, RUN_FILE
from cookhouse.runs.page import write_report
from cookhouse.telemetry import Event, Record, events
from cookhouse.training import SessionStatus
from cookhouse.version import __version__

logger = logging.getLogger(__name__)

_STATUSES: dict[SessionStatus, RunStatus] = {
    "success": RunStatus.FINISHED,
    "errored": RunStatus.FAILED,
    "interrupted": RunStatus.INTERRUPTED,
}


class Diary:
    """The record of a sitting that is on; a sink, from which it has the number of steps, the service, warnings and the
    registered model.

    Whatever is told of it is on disk when the call returns, which raises `InputError` where it cannot be.
    """

    def __init__(self, folder: Path, before: Sequence[Sitting], sitting: Sitting) -> None:
        self._folder = folder
        self._before = before
        self._sitting = sitting
        self._change(lambda sitting: sitting)

    def write(self, record: Record) -> None:
        if isinstance(record, Event) and record.name == events.RUN_START and "total_steps" in record.metrics:
            total_steps = int(record.metrics["total_steps"])
            self._change(lambda sitting: replace(sitting, total_steps=total_steps))
        if isinstance(record, Event) and record.name in (events.RUN_SERVICE, events.RUN_ENGINE):
            service = record.text.get("engine") or record.text["service"]
            self._change(lambda sitting: replace(sitting, service=service))
        if isinstance(record, Event) and record.name == events.RUN_WARNING:
            self._change(lambda sitting: sitting.warned(record.text["text"]))
        if isinstance(record, Event) and record.name == events.RUN_USAGE:
            self._change(lambda sitting: replace(sitting, usage=dict(record.metrics)))
        if isinstance(record, Event) and record.name == events.MODEL_REGISTERED:
            self._change(lambda sitting: replace(sitting, registered_model=record.text["model"]))

    def close(self) -> None:
        """Nothing is held."""

    def end(self, status: SessionStatus, error: BaseException | None = None) -> None:
        """Record how it ended, and why if it failed."""
        self._change(lambda sitting: sitting.ended(_STATUSES[status], error if status == "errored" else None))

    def _change(self, change: Callable[[Sitting], Sitting]) -> None:
        self._sitting = change(self._sitting)
        write_whole(self._folder / RUN_FILE, sittings_text([*self._before, self._sitting]))


def earlier_sittings(folder: Path) -> list[Sitting]:
    """Those of a run that is to go on, all of them over. Asked before anything is written there.

    Raises:
        InputError: run.json is not what a run writes.
    """
    sittings = read_sittings(folder) or read_history(folder).sittings
    return [sitting if sitting.ended_at else over(folder, sitting) for sitting in sittings]


def new_sitting(spec: FolderSpec, revision: str | None) -> Sitting:
    """One that begins now, in this process."""
    return Sitting(
        started_at=datetime.now(UTC),
        recipe=spec.typed or spec.recipe,
        adapters=spec.adapters,
        folder=str(Path.cwd()),
        process_id=os.getpid(),
        version=__version__,
        revision=revision,
        packages=versions(),
        machine=this_machine(),
    )


def record_failure(folder: Path, error: BaseException) -> None:
    """Record why a run ended that could not tell itself, since what it ran on was gone; its page is drawn anew.

    What ended it matters more than whether that can be written.
    """
    try:
        sittings = read_sittings(folder)
        if not sittings or sittings[-1].process_id != os.getpid():
            return
        *before, last = sittings
        if last.status not in (None, RunStatus.INTERRUPTED):
            return
        write_whole(folder / RUN_FILE, sittings_text([*before, last.ended(RunStatus.FAILED, error)]))
        if (folder / REPORT_FILE).exists():
            write_report(folder)
    except InputError as problem:
        logger.warning("the end of the run is not recorded as a whole: %s", problem)
