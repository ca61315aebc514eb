"""Workers of every transport, for the one suite that all of them pass."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from cookhouse.engine import Engine
from cookhouse.engine.contract import Worker, WorkerOptions
from cookhouse.engine.transports.simulated import Simulated
from cookhouse.engine.transports.thread import InThread
from tests.engine.transports.engine_child import engine_child
from tests.engine.transports.ray.fixtures import RAY_TRANSPORTS, ray_cluster, ray_is_here, ray_transports
from tests.engine.worker.driver import Driver
from tests.server.fake_engine import FakeEngine

__all__ = ["ray_cluster", "ray_is_here", "ray_transports"]

Transport = Callable[[type[Engine], WorkerOptions], Worker]
"""Makes a worker of an engine that a module has by the class's name, and that is made without arguments."""

TRANSPORTS: dict[str, Transport] = {
    "simulated": lambda engine, options: Simulated(lambda _spend: engine(), options),
    "thread": InThread,
    "child": engine_child,
}


class MakeWorker(Protocol):
    """A worker that has come up; one of a name at a time."""

    def __call__(self, engine: type[Engine] = FakeEngine, **options: Any) -> Driver: ...


@pytest.fixture
def options(tmp_path: Path) -> WorkerOptions:
    return WorkerOptions(
        worker="w1",
        folder=tmp_path / "worker",
        max_snapshot_bytes=2**20,
        max_snapshot_file_bytes=2**30,
        max_pass_tokens=100,
    )


@pytest.fixture(params=[*TRANSPORTS, *(pytest.param(name, marks=pytest.mark.ray) for name in RAY_TRANSPORTS)])
def make_worker(request: pytest.FixtureRequest, options: WorkerOptions) -> Iterator[MakeWorker]:
    transports = request.getfixturevalue("ray_transports") if request.param in RAY_TRANSPORTS else TRANSPORTS
    with ExitStack() as workers:

        def make(engine: type[Engine] = FakeEngine, **changes: Any) -> Driver:
            worker = transports[request.param](engine, replace(options, **changes))
            return workers.enter_context(Driver(worker))

        yield make


@pytest.fixture
def worker(make_worker: MakeWorker) -> Driver:
    """Over the fake engine."""
    return make_worker()
