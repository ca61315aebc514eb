"""What the client-config flags turn on."""

import concurrent.futures
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import tinker
from tests.contract.calls import BASE_MODEL, DATA, new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted
from tests.waiting import wait_until
from tinker import types

from cookhouse.engine.contract import SampleOutput
from cookhouse.server.http.routes import sessions
from cookhouse.server.settings import Settings

PROMPT = types.ModelInput.from_ints([3, 17, 4, 9])


def test_one_poll_per_sampler(tmp_path: Path) -> None:
    """Would catch completions that are lost, repeated for ever, or withheld until the next one."""
    with (
        hosted(tmp_path, FakeEngine, Settings(use_retrieve_futures=True)) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
        params = types.SamplingParams(max_tokens=3, stop=[])
        samples = [sampler.sample(PROMPT, 1, params) for _ in range(40)]
        assert all(len(one.result(timeout=10).sequences[0].tokens) == 3 for one in samples)
        with pytest.raises(tinker.RequestFailedError, match="prompt"):
            sampler.sample(types.ModelInput.from_ints([]), 1, params).result(timeout=10)
        assert len(sampler.sample(PROMPT, 1, params).result(timeout=10).sequences) == 1


def test_compressed_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server that asks for zstd and cannot read it."""
    monkeypatch.setattr(sessions, "_is_loopback", lambda _request: False)
    with (
        hosted(tmp_path, FakeEngine) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = new_trainer(client)
        assert trainer.holder.get_client_config().proto_compress_fwdbwd
        assert train(trainer, 2, DATA)[1] < train(trainer, 1, DATA[:1] * 5)[0]


def test_a_canceled_sample_leaves_the_engine(tmp_path: Path) -> None:
    """Would catch a decode that goes on for a client that has given up."""

    class SlowEngine(FakeEngine):
        def step_samples(self) -> Sequence[SampleOutput]:
            time.sleep(0.05)
            return []

    engine = SlowEngine()
    with (
        hosted(tmp_path, lambda: engine) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        sampler = client.create_sampling_client(base_model=BASE_MODEL).result()
        sample = sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1))
        wait_until(engine.has_samples)
        with pytest.raises(concurrent.futures.TimeoutError):
            sample.result(timeout=0.5)
        assert engine.has_samples()
        sample.future().cancel()
        wait_until(lambda: not engine.has_samples())
