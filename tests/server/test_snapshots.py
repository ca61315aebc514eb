"""Weights of sampling clients: memory stays bounded, and every client keeps the weights it was made with."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import tinker
from tests.server.fake_engine import VOCAB_SIZE, FakeEngine
from tests.server.hosting import KEY, hosted

from cookhouse.assets import TINY_MODEL
from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import Engine, LoraSpec, SampleRequest
from cookhouse.errors import ServiceError
from cookhouse.server.sessions import Snapshot
from cookhouse.server.settings import Settings
from cookhouse.server.snapshots import Snapshots

LORA = LoraSpec(rank=1)


@pytest.fixture
def engine() -> TorchEngine:
    """An engine with one model, whose weights differ from the base model's."""
    engine = TorchEngine(base_models=[TINY_MODEL], device="cpu", precision="float32")
    engine.create_model("m", TINY_MODEL, LORA)
    engine._model("m").params.add_(0.05)
    return engine


def _publish(engine: Engine, snapshots: Snapshots, name: str) -> Snapshot:
    snapshot = Snapshot(snapshot_id=name, base_model=TINY_MODEL, lora=LORA)
    engine.snapshot("m", name)
    snapshots.add(engine, snapshot)
    snapshots.trim(engine)
    return snapshot


def _sample(engine: TorchEngine, snapshots: Snapshots, snapshot: Snapshot) -> list[int]:
    snapshots.use(engine, snapshot)
    engine.submit_sample(
        SampleRequest(
            request_id="r",
            base_model=TINY_MODEL,
            snapshot_id=snapshot.snapshot_id,
            prompt_T=np.arange(10),
            max_tokens=20,
            stop=[],
            seed=1,
        )
    )
    tokens: list[int] = []
    while engine.has_samples():
        for output in engine.step_samples():
            tokens = output.sequences[0].tokens_T.tolist()
    return tokens


def test_a_thousand_publishes_stay_within_memory_and_disk(tmp_path: Path) -> None:
    """Would catch one copy of the weights per training step in memory, or files that outlive their session."""
    engine = FakeEngine()
    engine.create_model("m", "cookhouse/tiny", LORA)
    size = engine._model("m").bias_V.nbytes
    snapshots = Snapshots(tmp_path / "snapshots", max_bytes=4 * size)
    published = []
    for step in range(1000):
        engine._model("m").bias_V[:] = step
        published.append(_publish(engine, snapshots, str(step)))
        assert len(engine._snapshots) <= 4
    for step in (0, 500, 998):
        snapshots.use(engine, published[step])
        assert (engine._snapshots[str(step)] == step).all()
        assert len(engine._snapshots) <= 4
    for snapshot in published:
        snapshots.free(engine, snapshot)
    assert not engine._snapshots
    assert not any((tmp_path / "snapshots").iterdir())


def test_the_oldest_client_samples_the_same_tokens(engine: TorchEngine, tmp_path: Path) -> None:
    """Would catch weights that change on their way to a file and back, and an old client that reads newer weights."""
    engine.snapshot("m", "measured")
    size = engine.snapshot_bytes("measured")
    engine.delete_snapshot("measured")
    snapshots = Snapshots(tmp_path / "snapshots", max_bytes=4 * size)
    oldest = _publish(engine, snapshots, "0")
    expected = _sample(engine, snapshots, oldest)
    engine._model("m").params.add_(0.1)
    published = [oldest, *(_publish(engine, snapshots, str(step)) for step in range(1, 12))]
    assert len(engine._snapshots) == 4
    assert _sample(engine, snapshots, published[5]) != expected
    assert _sample(engine, snapshots, oldest) == expected
    assert len(engine._snapshots) == 4
    for snapshot in published:
        snapshots.free(engine, snapshot)


def test_a_snapshot_put_away_while_it_is_sampled_from_is_sampled_to_the_end(
    engine: TorchEngine, tmp_path: Path
) -> None:
    snapshots = Snapshots(tmp_path / "snapshots", max_bytes=0)
    first = _publish(engine, snapshots, "first")
    expected = _sample(engine, snapshots, first)
    engine.submit_sample(
        SampleRequest(
            request_id="r",
            base_model=TINY_MODEL,
            snapshot_id="first",
            prompt_T=np.arange(10),
            max_tokens=20,
            stop=[],
            seed=1,
        )
    )
    engine.step_samples()
    second = _publish(engine, snapshots, "second")
    assert list(engine._snapshots) == ["second"]
    tokens: list[int] = []
    while engine.has_samples():
        for output in engine.step_samples():
            tokens = output.sequences[0].tokens_T.tolist()
    assert tokens == expected
    for snapshot in (first, second):
        snapshots.free(engine, snapshot)


def test_the_ones_used_least_recently_are_put_away(tmp_path: Path) -> None:
    """Would catch a client in steady use whose weights are read from a file at every step."""
    engine = FakeEngine()
    engine.create_model("m", "cookhouse/tiny", LORA)
    snapshots = Snapshots(tmp_path / "snapshots", max_bytes=2 * engine._model("m").bias_V.nbytes)
    steady = _publish(engine, snapshots, "steady")
    for step in range(4):
        _publish(engine, snapshots, str(step))
        snapshots.use(engine, steady)
        assert set(engine._snapshots) == {"steady", str(step)}
    assert ("load_snapshot", "steady") not in engine.calls


def test_only_what_outlives_the_process_waits_for_the_disk(
    engine: TorchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch every publish waiting for the disk, and a save that a power cut takes back."""
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    snapshots = Snapshots(tmp_path / "snapshots", max_bytes=0)
    for name in ("0", "1"):
        _publish(engine, snapshots, name)
    assert any((tmp_path / "snapshots" / "0").iterdir())
    assert not flushed
    engine.save_snapshot("1", tmp_path / "saved", is_durable=True)
    assert len(flushed) >= len(list((tmp_path / "saved").iterdir()))


class FullDisk(FakeEngine):
    """Writes no snapshot while its disk is full."""

    is_full = False
    num_tries = 0

    def save_snapshot(self, snapshot_id: str, folder: Path, *, is_durable: bool) -> None:
        self.num_tries += 1
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().save_snapshot(snapshot_id, folder, is_durable=is_durable)


def test_on_a_full_disk_memory_stays_bounded_and_old_weights_can_be_sampled_from(tmp_path: Path) -> None:
    """Would catch a client that cannot sample because the weights of another cannot be written."""
    engine = FullDisk()
    engine.create_model("m", "cookhouse/tiny", LORA)
    snapshots = Snapshots(tmp_path / "snapshots", max_bytes=4 * engine._model("m").bias_V.nbytes)
    published = [_publish(engine, snapshots, str(step)) for step in range(8)]
    engine.is_full = True
    with pytest.raises(ServiceError, match="No space left"):
        _publish(engine, snapshots, "8")
    before = engine.num_tries
    for snapshot in published * 3:
        snapshots.use(engine, snapshot)
        assert snapshot.snapshot_id in engine._snapshots
        assert len(engine._snapshots) <= 6
    assert engine.num_tries - before <= 3 * len(published)  # one in vain says that the others would be
    engine.is_full = False
    snapshots.trim(engine)
    assert len(engine._snapshots) == 4


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


def test_files_of_an_earlier_process_are_deleted(tmp_path: Path) -> None:
    """Would catch a disk that fills up with what crashed servers left."""
    (tmp_path / "snapshots" / "stale").mkdir(parents=True)
    Snapshots(tmp_path / "snapshots", max_bytes=0)
    assert not (tmp_path / "snapshots").exists()
