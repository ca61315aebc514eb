"""What clients meet when one of several workers is killed, or drained: over HTTP, with the SDK, on children over the
fake engine.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.contract.calls import ADAM, new_trainer, train
from tests.engine.transports.engine_child import engine_child
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted_over

from cookhouse.engine.contract import SampleOutput, Worker, WorkerOptions
from cookhouse.engine.transports.child import Child
from cookhouse.server.pool.plans import plans_of
from cookhouse.server.settings import Settings

pytestmark = pytest.mark.slow

PROMPT = tinker.ModelInput.from_ints([1, 2, 3])
PARAMS = tinker.SamplingParams(max_tokens=20, seed=5, stop=[])
LONG = tinker.SamplingParams(max_tokens=124, seed=5, stop=[])
TOGETHER, APART = {"workers": 2}, {"trainers": 2, "samplers": 2}
SHAPES = pytest.mark.parametrize(
    "shape", [pytest.param(TOGETHER, id="together", marks=pytest.mark.long), pytest.param(APART, id="apart")]
)


class SlowEngine(FakeEngine):
    """Takes its time for each token, so that a kill meets samples under way."""

    def step_samples(self) -> Sequence[SampleOutput]:
        time.sleep(0.005)
        return super().step_samples()


class Server:
    """A server of several workers, each of which can be killed."""

    def __init__(self, host: Host, children: Mapping[str, Sequence[Child]]) -> None:
        self.host = host
        self._children = children

    @property
    def names(self) -> list[str]:
        return [worker.name for worker in self.host.service.pool.workers]

    def client(self, key: str = KEY) -> tinker.ServiceClient:
        return tinker.ServiceClient(base_url=self.host.url, api_key=key)

    def place_of(self, trainer: tinker.TrainingClient) -> str:
        """The worker that has a model."""
        worker = self.host.service.pool.placement.worker_of(trainer.get_info().model_id)
        assert worker is not None
        return worker.name

    def kill(self, name: str) -> None:
        """Kill a worker, and wait until another is up in its place."""
        count = len(self._children[name])
        os.kill(self._children[name][-1].pid, signal.SIGKILL)
        worker = next(worker for worker in self.host.service.pool.workers if worker.name == name)
        self.wait(lambda: len(self._children[name]) > count and worker.is_up)

    def wait(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@contextlib.contextmanager
def serving(folder: Path, shape: Mapping[str, int], **settings: Any) -> Iterator[Server]:
    children: dict[str, list[Child]] = {}

    def make_worker(options: WorkerOptions) -> Worker:
        children.setdefault(options.worker, []).append(engine_child(SlowEngine, options))
        return children[options.worker][-1]

    with hosted_over(folder, make_worker, Settings(**settings), plans=plans_of(**shape)) as host:
        yield Server(host, children)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "cookhouse")  # the losses are meant


@SHAPES
def test_models_of_a_killed_worker_go_on_elsewhere(tmp_path: Path, shape: Mapping[str, int]) -> None:
    """Would catch a model that is lost with its worker, or trained twice, and a loss that the other tenant notices."""
    with serving(tmp_path, shape) as server, server.client() as client, server.client(OTHER_KEY) as other_client:
        expected = train(new_trainer(client), 30)
        trainer, other = new_trainer(client), new_trainer(other_client)
        assert server.place_of(trainer) != server.place_of(other)
        with ThreadPoolExecutor(1) as pool:
            at_other = pool.submit(train, other, 30)
            losses = []
            for _ in range(3):
                training = threading.Thread(target=lambda: losses.extend(train(trainer, 10)))
                training.start()
                time.sleep(0.05)
                server.kill(server.place_of(trainer))
                training.join(60)
            assert losses == expected
            assert at_other.result(60) == expected


@SHAPES
def test_samples_go_on_whichever_worker_is_killed(tmp_path: Path, shape: Mapping[str, int]) -> None:
    """Would catch samples that are lost with their worker, or drawn of other weights."""
    with serving(tmp_path, shape, state_seconds=0.0) as server, server.client() as client:
        trainer = new_trainer(client)
        train(trainer, 2)
        samplers = [
            client.create_sampling_client(base_model="cookhouse/tiny").result(),
            trainer.save_weights_and_get_sampling_client().result(),
        ]
        expected = [one.sample(PROMPT, 2, LONG).result().sequences for one in samplers]
        for name in server.names:
            drawing = [one.sample(PROMPT, 2, LONG) for one in samplers for _ in range(4)]
            time.sleep(0.1)
            server.kill(name)
            for index, future in enumerate(drawing):
                sequences = future.result(60).sequences
                assert [one.tokens for one in sequences] == [one.tokens for one in expected[index // 4]]


@SHAPES
def test_a_worker_is_drained_under_its_clients(tmp_path: Path, shape: Mapping[str, int]) -> None:
    """Would catch an operator who cannot take a worker away without a client noticing."""
    with serving(tmp_path, shape) as server, server.client() as client:
        expected = train(new_trainer(client), 30)
        trainer = new_trainer(client)
        sampler = trainer.save_weights_and_get_sampling_client().result()
        drawn = sampler.sample(PROMPT, 2, LONG).result().sequences
        place = server.place_of(trainer)
        with ThreadPoolExecutor(1) as pool:
            training = pool.submit(train, trainer, 30)
            drawing = [sampler.sample(PROMPT, 2, LONG) for _ in range(4)]
            supervisor = server.host.service.supervisor
            server.host.on_loop(lambda: supervisor.drain(supervisor.begin_drain(place), 5.0))
            assert place not in server.names
            assert training.result(60) == expected
        drawing += [sampler.sample(PROMPT, 2, LONG) for _ in range(4)]
        for future in drawing:
            assert [one.tokens for one in future.result(60).sequences] == [one.tokens for one in drawn]
        num_left = len(server.names)
        server.host.on_loop(server.host.service.supervisor.add)
        server.wait(lambda: len(server.names) == num_left + 1 and server.host.service.pool.workers[-1].is_up)
        assert train(new_trainer(client), 30) == expected


def test_what_a_tenant_used_goes_by_no_loss_and_no_drain(tmp_path: Path) -> None:
    """Would catch tokens that count again with each worker that takes a model over."""
    with serving(tmp_path, TOGETHER, state_seconds=1e9) as server, server.client() as client:

        def used(trainer: tinker.TrainingClient) -> int:
            session_id = trainer.get_info().model_id.partition(":")[0]
            (owner,) = {session.owner for session in server.host.service.sessions}
            return server.host.service.requests.metering.of_session(session_id, owner).trained_tokens

        trainer = new_trainer(client)
        train(trainer, 3)
        expected = used(trainer)
        server.kill(server.place_of(trainer))
        train(trainer, 3)
        assert used(trainer) == 2 * expected
        place = server.place_of(trainer)
        server.host.on_loop(lambda: server.host.service.requests.workers.drain(place, 5.0))
        train(trainer, 3)
        assert used(trainer) == 3 * expected


@pytest.mark.slow
def test_without_a_journal_a_killed_worker_takes_its_own_models_alone(tmp_path: Path) -> None:
    """Would catch a loss that takes the models and the weights of every worker."""
    with serving(tmp_path, TOGETHER, journal="off") as server, server.client() as client:
        lost, kept = new_trainer(client), new_trainer(client)
        samplers = [one.save_weights_and_get_sampling_client().result() for one in (lost, kept)]
        server.kill(server.place_of(lost))
        with pytest.raises(tinker.TinkerError, match=r"engine was lost, and model .*killed by signal 9"):
            lost.optim_step(ADAM).result()
        with pytest.raises(tinker.TinkerError, match=r"weights of this sampling client with it .*publish them again"):
            samplers[0].sample(PROMPT, 1, PARAMS).result()
        assert kept.optim_step(ADAM).result().metrics
        assert len(samplers[1].sample(PROMPT, 1, PARAMS).result().sequences) == 1
        assert new_trainer(client).optim_step(ADAM).result().metrics
