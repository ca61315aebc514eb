"""The published SDK against our server: in front of a fake engine, and of the real one with the embedded model."""

from collections.abc import Iterator

import pytest
import tinker
import torch
from tests.contract.calls import BASE_MODEL, new_trainer
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import Engine


def make_torch_engine() -> Engine:
    engine = TorchEngine(base_models=[BASE_MODEL], precision="float32")
    torch.set_num_threads(1)  # several would wait for one another, spinning, where tests share the cores
    return engine


@pytest.fixture(scope="session", params=[FakeEngine, make_torch_engine], ids=["fake", "torch"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server with its default settings, one per engine for all tests."""
    with hosted(tmp_path_factory.mktemp("state"), request.param) as host:
        yield host


@pytest.fixture
def client(host: Host) -> Iterator[tinker.ServiceClient]:
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
        yield client


@pytest.fixture
def trainer(client: tinker.ServiceClient) -> tinker.TrainingClient:
    return new_trainer(client)
