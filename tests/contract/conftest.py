"""The published SDK against our server: in front of a fake engine, and of the real one with the embedded model."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import tinker
import torch
from tests.contract.calls import BASE_MODEL, new_trainer
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted, hosted_over

from cookhouse.engine import TorchEngine
from cookhouse.engine.engine import Engine
from cookhouse.server.pool.children import Children
from cookhouse.server.pool.plans import plans_of

PRECISIONS = ("float32", "bfloat16")
"""The second is the default on processors that multiply it faster; elsewhere torch computes it by way of fp32."""
TORCH_ENGINES = ("float32", pytest.param("bfloat16", marks=pytest.mark.slow))
"""The suite runs on both. In bf16 among the slow tests, but for what depends most on rounding: see below."""
SEVERAL = tuple(pytest.param(name, marks=pytest.mark.slow) for name in ("together", "apart"))
"""The fake, behind two workers that do all, and behind one that trains beside one that samples."""
of_several_workers = pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=pytest.mark.slow) for name in ("float32_together", "float32_apart")]
)
"""The real engine behind several workers."""
in_both_precisions = pytest.mark.parametrize("engine", PRECISIONS)
"""For what the fake engine does not compute."""
with_each_engine = pytest.mark.parametrize("engine", ["fake", *PRECISIONS])


def make_torch_engine(precision: str = "float32") -> Engine:
    engine = TorchEngine(base_models=[BASE_MODEL], precision=precision)
    torch.set_num_threads(1)  # several would wait for one another, spinning, where tests share the cores
    return engine


@pytest.fixture(scope="session")
def fake_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), FakeEngine) as host:
        yield host


@pytest.fixture(scope="session")
def float32_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), make_torch_engine) as host:
        yield host


@pytest.fixture(scope="session")
def bfloat16_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), partial(make_torch_engine, "bfloat16")) as host:
        yield host


@pytest.fixture(scope="session")
def together_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), FakeEngine, plans=plans_of(workers=2)) as host:
        yield host


@pytest.fixture(scope="session")
def apart_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("state"), FakeEngine, plans=plans_of(trainers=1, samplers=1)) as host:
        yield host


@contextmanager
def children_host(folder: Path, **numbers: int) -> Iterator[Host]:
    """The real engine in processes: it cannot be made twice at once in one."""
    with Children() as children:
        children.engine_options = {"base_models": [BASE_MODEL], "precision": "float32"}
        with hosted_over(folder, children, plans=plans_of(**numbers)) as host:
            yield host


@pytest.fixture(scope="session")
def float32_together_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with children_host(tmp_path_factory.mktemp("state"), workers=2) as host:
        yield host


@pytest.fixture(scope="session")
def float32_apart_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with children_host(tmp_path_factory.mktemp("state"), trainers=1, samplers=1) as host:
        yield host


@pytest.fixture(params=["fake", *TORCH_ENGINES, *SEVERAL])
def engine(request: pytest.FixtureRequest) -> str:
    """Which one: `fake`, by itself or behind several workers, or the precision of the real one."""
    return str(request.param)


@pytest.fixture
def host(request: pytest.FixtureRequest, engine: str) -> Host:
    """A server with its default settings, one per engine for all tests."""
    found: Host = request.getfixturevalue(f"{engine}_host")
    return found


@pytest.fixture
def client(host: Host) -> Iterator[tinker.ServiceClient]:
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        yield client


@pytest.fixture
def trainer(client: tinker.ServiceClient) -> tinker.TrainingClient:
    return new_trainer(client)
