"""A child over an engine of the tests, named by module and class; a process of its own: `python -m ... DESCRIPTOR`."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from cookhouse.engine import Engine
from cookhouse.engine.contract import WorkerOptions
from cookhouse.engine.transports.child import Child
from cookhouse.engine.transports.child_process import Running, Tell, run_child
from cookhouse.engine.worker import Runner


def engine_child(engine: type[Engine], options: WorkerOptions) -> Child:
    """A child over an engine that is made without arguments."""
    child = Child((sys.executable, "-m", __name__))
    child.begin(options, {"module": engine.__module__, "name": engine.__qualname__})
    return child


def make(options: WorkerOptions, engine: Mapping[str, Any], tell: Tell) -> Running:
    return Runner(getattr(import_module(engine["module"]), engine["name"]), options, tell)


def load() -> None:
    """Nothing is needed before it is known what for."""


if __name__ == "__main__":
    os._exit(run_child(int(sys.argv[-1]), load, make))
