"""What clients meet when the engine is killed: over HTTP, with the SDK, on a child over the fake engine."""

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.contract.calls import ADAM, new_trainer, train
from tests.engine.transports.engine_child import engine_child
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, Host, hosted_over

from cookhouse.engine.contract import SampleOutput, Worker, WorkerOptions
from cookhouse.engine.transports.child import Child
from cookhouse.server.settings import Settings

pytestmark = pytest.mark.slow

PROMPT = tinker.ModelInput.from_ints([1, 2, 3])
PARAMS = tinker.SamplingParams(max_tokens=20, seed=5, stop=[])
LOST = "the engine was lost: killed by signal 9 (out of memory?); another is started"
LONG = tinker.SamplingParams(max_tokens=124, seed=5, stop=[])


class SlowEngine(FakeEngine):
    """Takes its time for each token, so that a kill meets samples under way."""

    def step_samples(self) -> Sequence[SampleOutput]:
        time.sleep(0.01)
        return super().step_samples()


class Killed:
    """A server whose engine can be killed."""

    def __init__(self, host: Host, children: list[Child], told: list[str]) -> None:
        """`told`: what the server warns of."""
        self.host = host
        self.told = told
        self._children = children

    @property
    def num_engines(self) -> int:
        return len(self._children)

    def kill(self) -> None:
        """Kill the engine, and wait until the server has noticed."""
        count = len(self._children)
        os.kill(self._children[-1].pid, signal.SIGKILL)
        self.wait(count)

    def wait(self, count: int) -> None:
        """Wait until there have been more engines than so many, and the last is up."""
        deadline = time.monotonic() + 60
        while len(self._children) <= count or not self.host.service.pool.is_up:
            assert time.monotonic() < deadline, "no new engine came up"
            time.sleep(0.01)


@contextlib.contextmanager
def killed(folder: Path, **settings: Any) -> Iterator[Killed]:
    children: list[Child] = []

    def make_worker(options: WorkerOptions) -> Worker:
        children.append(engine_child(SlowEngine, options))
        return children[-1]

    told: list[str] = []
    with hosted_over(folder, make_worker, Settings(**settings), warn=told.append) as host:
        yield Killed(host, children, told)


@pytest.fixture
def server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Killed]:
    caplog.set_level(logging.CRITICAL, "cookhouse")  # the losses are meant
    with killed(tmp_path) as server:
        yield server


@pytest.fixture
def server_without_journal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Killed]:
    caplog.set_level(logging.CRITICAL, "cookhouse")
    with killed(tmp_path, journal="off") as server:
        yield server


STATES: dict[str, dict[str, Any]] = {
    "never": {},
    "at every step": {"state_seconds": 0.0},
    "by bytes": {"state_bytes": 1},
}


@pytest.mark.parametrize(
    "states", [pytest.param(name, marks=pytest.mark.slow) for name in ("never", "at every step", "by bytes")]
)
def test_training_goes_on_whenever_it_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture, states: str) -> None:
    """Would catch a model that is lost with its engine, a request that is applied twice or not at all, and a state
    that covers too much.
    """
    caplog.set_level(logging.CRITICAL, "cookhouse")
    with (
        killed(tmp_path, **STATES[states]) as server,
        tinker.ServiceClient(base_url=server.host.url, api_key=KEY) as client,
    ):
        undisturbed, trainer = new_trainer(client), new_trainer(client)
        expected = train(undisturbed, 30)
        losses = []
        for _ in range(3):
            training = threading.Thread(target=lambda: losses.extend(train(trainer, 10)))
            training.start()
            time.sleep(0.05)
            server.kill()
            training.join(60)
        assert losses == expected
        sampler = trainer.save_weights_and_get_sampling_client().result()
        drawn = sampler.sample(PROMPT, 2, PARAMS).result().sequences
        drawing = sampler.sample(PROMPT, 2, LONG)
        server.kill()
        assert len(drawing.result(60).sequences) == 2
        again = sampler.sample(PROMPT, 2, PARAMS).result().sequences
        assert [one.tokens for one in again] == [one.tokens for one in drawn]


def test_training_fails_in_words_and_goes_on_from_its_checkpoint(server_without_journal: Killed) -> None:
    """Would catch a client that waits for ever, and one that is not told where it can go on."""
    server = server_without_journal
    with tinker.ServiceClient(base_url=server.host.url, api_key=KEY) as client:
        trainer = client.create_lora_training_client(base_model="cookhouse/tiny", rank=1).result()
        path = trainer.save_state("first").result().path
        server.kill()
        with pytest.raises(tinker.TinkerError, match=f"engine was lost, and model .*killed by signal 9.*{path}"):
            trainer.optim_step(ADAM).result()
        assert server.told == [f"{LOST}, and what 1 model had learned is lost: the server keeps no journal"]
        resumed = client.create_training_client_from_state_with_optimizer(path).result()
        assert resumed.optim_step(ADAM).result().metrics


@pytest.mark.parametrize("num_kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_samples_go_on_whenever_it_is_killed(server: Killed, num_kills: int) -> None:
    """Would catch a sample that is lost with its engine, is drawn with another seed, or of other weights, and silence
    after what may be a shortage of memory.
    """
    chance = random.Random(num_kills)
    with tinker.ServiceClient(base_url=server.host.url, api_key=KEY) as client:
        trainer = client.create_lora_training_client(base_model="cookhouse/tiny", rank=1).result()
        saved = trainer.save_weights_for_sampler("weights").result().path
        samplers = [
            client.create_sampling_client(base_model="cookhouse/tiny").result(),
            client.create_sampling_client(model_path=saved).result(),
        ]
        expected = [one.sample(PROMPT, 2, PARAMS).result().sequences for one in samplers]
        for kill in range(num_kills):
            drawing = [one.sample(PROMPT, 2, PARAMS) for one in samplers]
            time.sleep(chance.uniform(0.0, 0.3))
            server.kill()
            for future, sequences in zip(drawing, expected, strict=True):
                assert [one.tokens for one in future.result(60).sequences] == [one.tokens for one in sequences]
            assert server.num_engines == kill + 2
            assert len(server.told) == kill + 1
            other = client.create_lora_training_client(base_model="cookhouse/tiny", rank=1).result()
            assert other.optim_step(ADAM).result().metrics
    again = "run again, and what had no answer yet"
    assert server.told[:2] == [  # the making of each model, and a step of the second; what was saved is loaded
        f"{LOST}, and work goes on: 1 request of 1 model {again}",
        f"{LOST}, and work goes on: 3 requests of 2 models {again}",
    ]


def test_unnamed_weights_are_gone_in_words(server_without_journal: Killed) -> None:
    """Would catch a sampler that waits for ever, or samples other weights than it was made for."""
    server = server_without_journal
    with tinker.ServiceClient(base_url=server.host.url, api_key=KEY) as client:
        trainer = client.create_lora_training_client(base_model="cookhouse/tiny", rank=1).result()
        sampler = trainer.save_weights_and_get_sampling_client().result()
        running = sampler.sample(PROMPT, 1, LONG)
        server.kill()
        with pytest.raises(tinker.TinkerError, match=r"weights of this sampling client with it"):
            running.result()
        with pytest.raises(tinker.TinkerError, match=r"weights of this sampling client with it .*publish them again"):
            sampler.sample(PROMPT, 1, PARAMS).result()
