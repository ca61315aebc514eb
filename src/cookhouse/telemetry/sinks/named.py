"""Sinks by name, as a run's settings ask for them, and starting one."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cookhouse.errors import CookhouseError, InputError
from cookhouse.extras import install_command
from cookhouse.naming import OpenSet, names_in
from cookhouse.telemetry.record import Record, Sink

SinkBuilder: TypeAlias = Callable[[Path, Mapping[str, Any]], Sink]
"""Makes a sink for a run, from its folder and its settings by name. One that raises refuses the run."""

_PROJECTS = ("wandb", "trackio", "mlflow")

SINKS: OpenSet[SinkBuilder] = OpenSet(
    kind="sink",
    group="cookhouse.sinks",
    builtin={
        "terminal": "cookhouse.telemetry.terminal:make_terminal_sink",
        "jsonl": "cookhouse.telemetry.sinks.record_file:make_sink",
        "noop": "cookhouse.telemetry.sinks.noop:make_sink",
        "opentelemetry": "cookhouse.telemetry.sinks.opentelemetry:SINK",
        "tensorboard": "cookhouse.telemetry.sinks.tensorboard:make_sink",
        "wandb": "cookhouse.telemetry.sinks.wandb:SINK",
        "trackio": "cookhouse.telemetry.sinks.trackio:make_sink",
        "mlflow": "cookhouse.telemetry.sinks.mlflow:make_sink",
    },
    check=lambda thing: thing if callable(thing) else None,
    wants="a sink is named by a function of the run directory and the settings that makes one",
    takes=("folder", "settings"),
)


def sink_names(sinks: str, wandb_project: str | None) -> list[str]:
    """The names in `sinks`, each once. A `wandb_project` without a sink that has projects stands for `wandb`."""
    names = list(dict.fromkeys(names_in(sinks)))
    if wandb_project is not None and not set(names) & set(_PROJECTS):
        names.append("wandb")
    return names


def find_sink(name: str) -> SinkBuilder:
    """Function that makes the sink of a name. Raises as `OpenSet.find`; a missing library is said with the extra that
    has it.
    """
    try:
        return SINKS.find(name)
    except InputError as error:
        missing = error.__cause__
        if name not in SINKS.builtin or not isinstance(missing, ModuleNotFoundError):
            raise
        raise InputError(f"sink {name} needs the library {missing.name}: {install_command(name)}") from error


@dataclass(frozen=True)
class CheckedSink:
    """A builder of a sink that knows, without a connection, what it would refuse."""

    make: SinkBuilder
    check: Callable[[], None]
    """Raises `InputError`."""

    def __call__(self, folder: Path, settings: Mapping[str, Any]) -> Sink:
        return self.make(folder, settings)


def check_sink(name: str) -> None:
    """See that a sink is there, with its library, and has what it needs, as far as it knows without a connection.

    Raises:
        UnknownNameError, InputError: as `find_sink`; or the sink could not start, and why.
    """
    make = find_sink(name)
    if isinstance(make, CheckedSink):
        with _starting(name):
            make.check()


def start_sink(name: str, folder: Path, settings: Mapping[str, Any]) -> Sink:
    """A sink of `SINKS` in a thread of its own; blocks until it has started.

    Raises:
        UnknownNameError, InputError: as `find_sink`; or the sink cannot start, and why.
    """
    make = find_sink(name)
    with _starting(name):
        return Background(name, lambda: make(folder, settings))


@contextmanager
def _starting(name: str) -> Iterator[None]:
    try:
        yield
    except CookhouseError as error:
        raise InputError(f"sink {name} cannot start: {error}") from error
    except Exception as error:  # of a tool, or of the user's own code: it must work at the start
        raise InputError(f"sink {name} cannot start: {type(error).__name__}: {error}") from error


START_SECONDS = 90.0
CLOSE_SECONDS = 30.0
MAX_WAITING = 10_000


class Background:
    """Makes, writes to and closes a sink in one thread. What it raises is raised by the next `write`, or by `close`.

    Raises:
        TimeoutError: it has not started within `start_seconds`.
        Exception: whatever `make` raised.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Sink],
        *,
        start_seconds: float = START_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self.name = name
        self._make = make
        self._close_seconds = close_seconds
        self._records: queue.Queue[Record | None] = queue.Queue(MAX_WAITING)
        self._started = threading.Event()
        self._error: BaseException | None = None
        # A daemon: a tool that hangs may not keep the process either.
        self._thread = threading.Thread(target=self._work, name=f"sink {name}", daemon=True)
        self._thread.start()
        if not self._started.wait(start_seconds):
            self._records.put(None)  # it is closed at once if it starts after all
            raise TimeoutError(f"it has not started after {start_seconds:g} s")
        self._raise_error()

    def write(self, record: Record) -> None:
        """Hand a record over. Raises what the sink raised before, or `queue.Full` if it is far behind."""
        self._raise_error()
        self._records.put_nowait(record)

    def close(self) -> None:
        """Wait until everything is written and the sink closed. Raises what it raised, or `TimeoutError`."""
        deadline = time.monotonic() + self._close_seconds
        try:
            self._records.put(None, timeout=self._close_seconds if self._thread.is_alive() else 0.0)
        except queue.Full:
            self._raise_error()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._raise_error()
        if self._thread.is_alive():
            raise TimeoutError(f"it has not finished after {self._close_seconds:g} s; its last records may be lost")

    def _raise_error(self) -> None:
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise RuntimeError(f"it ended its thread: {self._error!r}") from self._error

    def _work(self) -> None:
        try:
            sink = self._make()
        except BaseException as error:  # a library may exit, which would end this thread unseen
            self._error = error
            return
        finally:
            self._started.set()
        try:
            try:
                while (record := self._records.get()) is not None:
                    sink.write(record)
            finally:
                sink.close()
        except BaseException as error:
            self._error = error
