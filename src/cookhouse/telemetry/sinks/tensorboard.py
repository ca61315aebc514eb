"""TensorBoard event files in the run directory, by TensorBoard's own writer: neither TensorFlow nor torch is needed."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event as LogEvent
from tensorboard.compat.proto.event_pb2 import SessionLog
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from cookhouse.telemetry import events
from cookhouse.telemetry.record import Event, MetricsRow, Record
from cookhouse.telemetry.sinks.tracked import described

FOLDER = "tensorboard"


class TensorboardSink:
    """Writes numbers as scalars, in TensorBoard's single precision, text as text, and settings as hyperparameters."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._writer = EventFileWriter(str(folder))
        plain = {
            name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in config.items()
        }
        self._add(0, hparams_pb(plain))

    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow):
            for name, value in record.metrics.items():
                self._add(record.step, _summary(name, value))
            self._writer.flush()
        elif isinstance(record, Event) and record.name == events.RUN_START:
            # From the second start on, TensorBoard drops what it has from that step on: it comes again.
            start = SessionLog(status=SessionLog.START)
            self._writer.add_event(LogEvent(wall_time=time.time(), step=record.step or 0, session_log=start))

    def close(self) -> None:
        self._writer.close()

    def _add(self, step: int, summary: Any) -> None:
        self._writer.add_event(LogEvent(wall_time=time.time(), step=step, summary=summary))


def make_sink(folder: Path, settings: Mapping[str, Any]) -> TensorboardSink:
    """The sink `tensorboard`."""
    return TensorboardSink(folder / FOLDER, described(folder, settings))


def _summary(name: str, value: float | str) -> Any:
    # A scalar of double precision is none to the faster one of TensorBoard's two servers.
    with np.errstate(over="ignore"):
        return text_pb(name, value) if isinstance(value, str) else scalar_pb(name, value)
