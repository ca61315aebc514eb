"""Clusters that tests share: a session's."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from cookhouse.engine import Engine
from cookhouse.engine.contract import Worker, WorkerOptions
from cookhouse.engine.transports.ray.addresses import LOCAL
from cookhouse.engine.transports.ray.workers import RayWorkers
from tests.engine.transports.ray.clusters import ELSEWHERE, ENGINE_DRIVER, HERE, TwoNodes, two_nodes

NEEDS = {"ray": HERE, "ray, another node": ELSEWHERE}
LOCAL_NAME = "ray, a cluster of its own"
RAY_TRANSPORTS = (*NEEDS, LOCAL_NAME)


@pytest.fixture(scope="session")
def ray_is_here() -> None:
    """Skips where Ray is not installed."""
    if find_spec("ray") is None:
        pytest.skip("needs Ray: make test-ray installs it")


@pytest.fixture(scope="session")
def ray_cluster(ray_is_here: None) -> Iterator[TwoNodes]:  # noqa: ARG001
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ray_transports(ray_cluster: TwoNodes) -> Iterator[dict[str, Callable[[type[Engine], WorkerOptions], Worker]]]:
    """By name; the workers of each share a driver."""
    with ExitStack() as drivers:

        def transport(workers: RayWorkers) -> Callable[[type[Engine], WorkerOptions], Worker]:
            drivers.enter_context(workers)

            def make(engine: type[Engine], options: WorkerOptions) -> Worker:
                workers.engine_options = {"module": engine.__module__, "name": engine.__qualname__}
                return workers(options)

            return make

        joined = {name: transport(ray_cluster.workers(needs, ENGINE_DRIVER)) for name, needs in NEEDS.items()}
        yield joined | {LOCAL_NAME: transport(RayWorkers(LOCAL, command=ENGINE_DRIVER, num_cpus=1))}
