"""The published SDK against our server keeps what training and sampling clients promise."""

import pytest
from tests.contract.calls import BASE_MODEL
from tests.contract.conftest import in_both_precisions
from tests.engine.numerics import PORT_NATS
from tests.server.hosting import KEY, Host

from cookhouse.testing import SamplingClientContract, TrainingClientContract
from cookhouse.training import Connect, connect_to

pytestmark = in_both_precisions


class TestTraining(TrainingClientContract):
    base_model = BASE_MODEL

    @pytest.fixture(autouse=True)
    def _service(self, host: Host, engine: str) -> None:
        self.url = host.url
        self.tolerance = PORT_NATS[engine]

    def make(self) -> Connect:
        return connect_to(self.url, KEY)


class TestSampling(SamplingClientContract):
    base_model = BASE_MODEL

    @pytest.fixture(autouse=True)
    def _service(self, host: Host, engine: str) -> None:
        self.url = host.url
        self.tolerance = PORT_NATS[engine]

    def make(self) -> Connect:
        return connect_to(self.url, KEY)
