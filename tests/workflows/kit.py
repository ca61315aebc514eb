"""A run's context without files or a service."""

from pathlib import Path
from typing import Any

from cookhouse.adapters import Adapters
from cookhouse.runs import FolderChoice, FolderSpec
from cookhouse.telemetry import Record, Sink, Telemetry
from cookhouse.training import FakeService, Interrupt
from cookhouse.workflows import RunContext


class Keeping:
    """A sink that keeps records."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None: ...


def make_context(*sinks: Sink, **adapters: Any) -> RunContext:
    folder = FolderSpec(path=Path("unused"), recipe="test", config={}, seed=0, behavior="raise", free_fields=())
    return RunContext(
        recipe="test",
        folder=folder,
        choice=FolderChoice.CREATE,
        adapters=Adapters(**{"service": FakeService().connect, **adapters}),
        telemetry=Telemetry(sinks),
        interrupt=Interrupt(),
    )
