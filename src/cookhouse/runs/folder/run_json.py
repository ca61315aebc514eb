"""Keeps run.json while a run is on: that a launch began, what is reported of it, and how it ended."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.files import write_whole
from cookhouse.runs.folder.choice import FolderSpec
from cookhouse.runs.history.launches import Launch, RunStatus, launches_text, over, read_launches
from cookhouse.runs.history.machine import this_machine, versions
from cookhouse.runs.names import REPORT_FILE, RUN_FILE
from cookhouse.runs.page import write_report
from cookhouse.telemetry import Event, Metric, MetricsRow, Record, declared_of, events
from cookhouse.training import SessionStatus
from cookhouse.version import __version__

logger = logging.getLogger(__name__)

_STATUSES: dict[SessionStatus, RunStatus] = {
    "success": RunStatus.FINISHED,
    "errored": RunStatus.FAILED,
    "interrupted": RunStatus.INTERRUPTED,
}


class RunJson:
    """The record of a launch that is on; a sink, from which it has the number of steps, the service, warnings, notes
    from before it trained, the registered model, and what was declared of its metrics.

    Whatever is reported of it is on disk when the call returns, which raises `InputError` where it cannot be.
    """

    def __init__(self, folder: Path, before: Sequence[Launch], launch: Launch) -> None:
        self._folder = folder
        self._before = before
        self._launch = launch
        self._seen: set[str] = set()
        self._change(lambda launch: launch)

    def write(self, record: Record) -> None:
        if isinstance(record, Event) and record.name == events.DATA_NOTE and not self._seen:
            self._change(lambda launch: launch.noted(record.text["text"]))
        if isinstance(record, MetricsRow) and (new := set(record.metrics) - self._seen):
            self._seen |= new
            declared = {metric.name: metric for metric in (*self._launch.metrics, *declared_of(new))}
            if list(declared.values()) != list(self._launch.metrics):
                self._change(lambda launch: replace(launch, metrics=list(declared.values())))
        if isinstance(record, Event) and record.name == events.RUN_START and "total_steps" in record.metrics:
            total_steps = int(record.metrics["total_steps"])
            self._change(lambda launch: replace(launch, total_steps=total_steps))
        if isinstance(record, Event) and record.name == events.RUN_ENGINE:
            self._change(lambda launch: replace(launch, service=record.text["engine"]))
        is_first = self._launch.service is None  # later ones report its state
        if isinstance(record, Event) and record.name == events.RUN_SERVICE and is_first:
            self._change(lambda launch: replace(launch, service=record.text["service"]))
        if isinstance(record, Event) and record.name == events.RUN_WARNING:
            self._change(lambda launch: launch.warned(record.text["text"]))
        if isinstance(record, Event) and record.name in (events.TRAINING_STOPPED, events.RUN_ENDS):
            self._change(lambda launch: replace(launch, stopped=record.text["text"]))
        if isinstance(record, Event) and record.name == events.RUN_USAGE:
            self._change(lambda launch: replace(launch, usage=dict(record.metrics)))
        if isinstance(record, Event) and record.name == events.MODEL_REGISTERED:
            self._change(lambda launch: replace(launch, registered_model=record.text["model"]))

    def declare(self, metric: Metric) -> None:
        """Record what a metric is in this run; what its code declares of the same name holds before that."""
        self._change(lambda launch: replace(launch, metrics=[*launch.metrics, metric]))

    def close(self) -> None:
        """Nothing is held."""

    def end(self, status: SessionStatus, error: BaseException | None = None) -> None:
        """Record how it ended, and why if it failed."""
        self._change(lambda launch: launch.ended(_STATUSES[status], error if status == "errored" else None))

    def _change(self, change: Callable[[Launch], Launch]) -> None:
        self._launch = change(self._launch)
        write_whole(self._folder / RUN_FILE, launches_text([*self._before, self._launch]))


def earlier_launches(folder: Path) -> list[Launch]:
    """Launches of a run that is to go on, all of them over. Asked before anything is written there.

    Raises:
        InputError: run.json is not what a run writes.
    """
    launches = read_launches(folder)
    return [launch if launch.ended_at else over(folder, launch) for launch in launches]


def new_launch(spec: FolderSpec, revision: str | None) -> Launch:
    """One that begins now, in this process."""
    return Launch(
        started_at=datetime.now(UTC),
        recipe=spec.typed or spec.recipe,
        adapters=spec.adapters,
        folder=str(Path.cwd()),
        process_id=os.getpid(),
        version=__version__,
        revision=revision,
        headline=spec.config.get("headline"),
        packages=versions(),
        machine=this_machine(),
    )


def record_failure(folder: Path, error: BaseException, write_page: Callable[[Path], object] = write_report) -> None:
    """Record why a run ended that could not do so itself, since what it ran on was gone; its page is written anew.

    `write_page` writes it; default: the page of one run.
    What ended it matters more than whether that can be written.
    """
    try:
        launches = read_launches(folder)
        if not launches or launches[-1].process_id != os.getpid():
            return
        *before, last = launches
        if last.status not in (None, RunStatus.INTERRUPTED):
            return
        write_whole(folder / RUN_FILE, launches_text([*before, last.ended(RunStatus.FAILED, error)]))
        if (folder / REPORT_FILE).exists():
            write_page(folder)
    except InputError as problem:
        logger.warning("the end of the run is not recorded as a whole: %s", problem)
