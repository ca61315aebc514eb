"""A server whose checkpoints lie in an object store, to clients: as any other."""

import os
import shutil
import time
from pathlib import Path

import pytest
import tinker
from tests.contract.calls import greedy, new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted
from tests.waiting import wait_until

from cookhouse.server.settings import Settings

PROMPT = tinker.ModelInput.from_ints([1, 2, 3])


def make_old(cache: Path) -> None:
    long_ago = time.time() - 3700
    for copy in cache.iterdir():
        os.utime(copy, (long_ago, long_ago))


def test_a_copy_stays_while_a_sampling_client_has_its_weights(tmp_path: Path) -> None:
    """Would catch a copy that is dropped, though a worker reads it again when its memory is full, or after a loss."""
    settings = Settings(checkpoints=f"file://{tmp_path / 'bucket'}", sweep_seconds=3600.0)
    cache = tmp_path / "state" / "checkpoints-cache"
    cache.parent.mkdir()
    with hosted(tmp_path / "state", FakeEngine, settings) as host:
        with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
            trainer = new_trainer(client)
            train(trainer, 1)
            path = trainer.save_weights_for_sampler("mine").result().path
            shutil.rmtree(next(cache.iterdir()))  # as after an hour
            sampler = client.create_sampling_client(path).result()
            sampler.sample(PROMPT, 1, greedy(2)).result()
            make_old(cache)
            host.on_loop(host.service.sweeper.sweep)
            assert len(list(cache.iterdir())) == 1

        def is_swept() -> bool:
            host.on_loop(host.service.sweeper.sweep)
            return list(cache.iterdir()) == []

        wait_until(is_swept)


def test_a_server_starts_again_on_another_machine(tmp_path: Path) -> None:
    """Would catch checkpoints that need the folder of the server that saved them."""
    settings = Settings(checkpoints=f"file://{tmp_path / 'bucket'}")
    (tmp_path / "old").mkdir()
    with (
        hosted(tmp_path / "old", FakeEngine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = new_trainer(client)
        train(trainer, 2)
        path = trainer.save_state("mine").result().path
        losses = train(trainer, 1)
    (tmp_path / "new").mkdir()
    shutil.copyfile(tmp_path / "old" / "server.db", tmp_path / "new" / "server.db")
    with (
        hosted(tmp_path / "new", FakeEngine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        loaded = client.create_training_client_from_state_with_optimizer(path).result()
        assert train(loaded, 1) == losses
        shutil.rmtree(tmp_path / "bucket" / "files")
        shutil.rmtree(next((tmp_path / "new" / "checkpoints-cache").iterdir()))
        with pytest.raises(tinker.TinkerError, match="is damaged on the service's side"):
            client.create_training_client_from_state(path).result()
