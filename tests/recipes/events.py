"""Keeps a run's events, and can do something at one of them."""

from collections.abc import Callable

from cookhouse.telemetry import Event, Record


class Events:
    """A sink."""

    def __init__(self, on: Callable[[Event], None] = lambda _: None) -> None:
        self.all: list[Event] = []
        self._on = on

    @property
    def names(self) -> list[str]:
        """Of all of them, in order."""
        return [event.name for event in self.all]

    def write(self, record: Record) -> None:
        if isinstance(record, Event):
            self.all.append(record)
            self._on(record)

    def close(self) -> None: ...
