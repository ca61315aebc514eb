"""Keeps the names of a run's events, and can do something at one of them."""

from collections.abc import Callable

from cookhouse.telemetry import Event, Record


class Events:
    """A sink."""

    def __init__(self, on: Callable[[Event], None] = lambda _: None) -> None:
        self.names: list[str] = []
        self._on = on

    def write(self, record: Record) -> None:
        if isinstance(record, Event):
            self.names.append(record.name)
            self._on(record)

    def close(self) -> None: ...
