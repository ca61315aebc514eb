"""Sinks by name, as a run's settings ask for them, and starting one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cookhouse.errors import CookhouseError, InputError
from cookhouse.extras import install_command
from cookhouse.naming import OpenSet, names_in
from cookhouse.telemetry.record import Sink
from cookhouse.telemetry.sinks.background import Background

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
    """What makes the sink of a name. Raises as `OpenSet.find`; a missing library is said with the extra that has it."""
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
