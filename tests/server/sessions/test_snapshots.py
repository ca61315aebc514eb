"""Weights of sampling clients, over HTTP: how many are held, in memory and on disk, and what a client is told."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import tinker
from tests.server.fake_engine import VOCAB_SIZE, FakeEngine
from tests.server.hosting import KEY, hosted
from tests.server.test_routes import HeldSamples
from tests.waiting import wait_until

from cookhouse.server.settings import Settings


class FullDisk(FakeEngine):
    """Writes no snapshot while its disk is full."""

    is_full = False
    num_tries = 0

    def copy_snapshot(self, snapshot_id: str, *, is_durable: bool) -> Callable[[Path], None]:
        write = super().copy_snapshot(snapshot_id, is_durable=is_durable)

        def write_if_there_is_room(folder: Path) -> None:
            self.num_tries += 1
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(folder)

        return write_if_there_is_room


def test_on_a_full_disk_no_more_weights_are_published(tmp_path: Path) -> None:
    """Would catch a run that fills the memory, a copy at every step, while a log says that the disk is full."""
    engine = FullDisk()
    engine.is_full = True
    settings = Settings(max_snapshot_bytes=2 * VOCAB_SIZE * 8)
    with (
        hosted(tmp_path, lambda: engine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = client.create_lora_training_client(base_model="cookhouse/tiny", rank=1).result()
        for _ in range(3):
            trainer.save_weights_and_get_sampling_client().result()
        for _ in range(2):
            with pytest.raises(tinker.TinkerError, match="No space left"):
                trainer.save_weights_and_get_sampling_client().result()
        assert len(engine._snapshots) == 3
        engine.is_full = False
        trainer.save_weights_and_get_sampling_client().result()


@pytest.mark.slow
def test_hundreds_of_publishes_leave_few_files_and_a_run_goes_on(tmp_path: Path) -> None:
    """Would catch a run that fills the disk with a copy of its weights at every step, or that ends when it may not."""
    engine = FakeEngine()
    settings = Settings(max_snapshot_bytes=2 * VOCAB_SIZE * 8, max_snapshot_file_bytes=10 * 2**20)
    folder = tmp_path / "snapshots"
    with (
        hosted(tmp_path, lambda: engine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = client.create_lora_training_client(base_model="cookhouse/tiny", rank=1).result()
        trainer.save_weights_for_sampler("named").result()
        named = trainer.create_sampling_client(trainer.save_weights_for_sampler("other").result().path).result()
        prompt = tinker.ModelInput.from_ints([1, 2, 3])
        params = tinker.SamplingParams(max_tokens=1)
        first = trainer.save_weights_and_get_sampling_client().result()
        steady = trainer.save_weights_and_get_sampling_client().result()
        for step in range(300):
            newest = trainer.save_weights_and_get_sampling_client().result()
            if step % 5 == 0:
                steady.sample(prompt, 1, params).result()
            files = list(folder.iterdir()) if folder.exists() else []
            assert len(files) <= 12  # one may be in the making, and one on its way out
            assert len(engine._snapshots) <= 4
        for sampler in (newest, steady, named):
            sampler.sample(prompt, 1, params).result()
        with pytest.raises(
            tinker.TinkerError, match=r"are gone: newer ones .* may take 10\.00 MiB .*save_weights_for_sam"
        ):
            first.sample(prompt, 1, params).result()


def test_weights_are_kept_as_long_as_a_sample_of_them_runs(tmp_path: Path) -> None:
    """Would catch samples that do not count as use, and use that never ends: then no room is ever found again."""
    engine = HeldSamples()
    settings = Settings(max_snapshot_bytes=VOCAB_SIZE * 8, max_snapshot_file_bytes=3 * 2**20)
    with (
        hosted(tmp_path, lambda: engine, settings) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        trainer = client.create_lora_training_client(base_model="cookhouse/tiny", rank=1).result()
        prompt, params = tinker.ModelInput.from_ints([1, 2, 3]), tinker.SamplingParams(max_tokens=1)
        busy = trainer.save_weights_and_get_sampling_client().result()
        running = busy.sample(prompt, 1, params)
        wait_until(engine.has_samples)
        for _ in range(10):
            trainer.save_weights_and_get_sampling_client().result()
        engine.free.set()
        running.result()
        busy.sample(prompt, 1, params).result()
        for _ in range(10):
            trainer.save_weights_and_get_sampling_client().result()
        with pytest.raises(tinker.TinkerError, match="are gone: newer ones"):
            busy.sample(prompt, 1, params).result()
