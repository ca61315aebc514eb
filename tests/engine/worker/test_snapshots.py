"""Snapshots: memory and disk stay bounded, and every client keeps the weights it was made with."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cookhouse.assets import TINY_MODEL
from cookhouse.engine import Engine, TorchEngine
from cookhouse.engine.contract import DamagedError, LoraSpec, SampleRequest
from cookhouse.engine.files.checksums import checksums
from cookhouse.engine.worker.snapshots import Snapshot, Snapshots
from cookhouse.errors import InputError, ServiceError
from tests.engine.stepping import advance
from tests.server.fake_engine import VOCAB_SIZE, FakeEngine

LORA = LoraSpec(rank=1)


@pytest.fixture
def engine() -> TorchEngine:
    """An engine with one model, whose weights differ from the base model's."""
    engine = TorchEngine(base_models=[TINY_MODEL], device="cpu", precision="float32")
    engine.create_model("m", TINY_MODEL, LORA)
    engine._model("m").params.add_(0.05)
    return engine


class InlineWriter(Executor):
    """Writes at once, in the caller's thread."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":  # type: ignore[override]
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


def _snapshots(
    tmp_path: Path, max_bytes: int, max_file_bytes: int = 2**40, writer: Executor | None = None
) -> Snapshots:
    return Snapshots(
        tmp_path / "snapshots",
        max_bytes=max_bytes,
        max_file_bytes=max_file_bytes,
        writer=writer or InlineWriter(),
    )


def _publish(engine: Engine, snapshots: Snapshots, name: str, model_id: str = "m", owner: str = "someone") -> Snapshot:
    snapshot = Snapshot(snapshot_id=name, owner=owner, base_model=TINY_MODEL, lora=LORA, model_id=model_id)
    snapshots.admit(engine)
    engine.snapshot(model_id, name)
    snapshots.add(engine, snapshot)
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
        for output in advance(engine):
            tokens = output.sequences[0].tokens_T.tolist()
    return tokens


def test_a_thousand_publishes_stay_within_memory_and_disk(tmp_path: Path) -> None:
    """Would catch one copy of the weights per training step in memory, or files that outlive their session."""
    engine = FakeEngine()
    engine.create_model("m", "cookhouse/tiny", LORA)
    size = engine._model("m").bias_V.nbytes
    snapshots = _snapshots(tmp_path, max_bytes=4 * size)
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
    snapshots = _snapshots(tmp_path, max_bytes=4 * size)
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
    snapshots = _snapshots(tmp_path, max_bytes=0)
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
        for output in advance(engine):
            tokens = output.sequences[0].tokens_T.tolist()
    assert tokens == expected
    for snapshot in (first, second):
        snapshots.free(engine, snapshot)


def test_the_ones_used_least_recently_are_put_away(tmp_path: Path) -> None:
    """Would catch a client in steady use whose weights are read from a file at every step."""
    engine = FakeEngine()
    engine.create_model("m", "cookhouse/tiny", LORA)
    snapshots = _snapshots(tmp_path, max_bytes=2 * engine._model("m").bias_V.nbytes)
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
    snapshots = _snapshots(tmp_path, max_bytes=0)
    for name in ("0", "1"):
        _publish(engine, snapshots, name)
    assert any((tmp_path / "snapshots" / "0").iterdir())
    assert not flushed
    engine.copy_snapshot("1", is_durable=True)(tmp_path / "saved")
    assert len(flushed) >= len(list((tmp_path / "saved").iterdir()))


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


def test_on_a_full_disk_memory_stays_bounded_and_old_weights_can_be_sampled_from(tmp_path: Path) -> None:
    """Would catch a client that cannot sample because the weights of another cannot be written."""
    engine = FullDisk()
    engine.create_model("m", "cookhouse/tiny", LORA)
    snapshots = _snapshots(tmp_path, max_bytes=4 * engine._model("m").bias_V.nbytes)
    published = [_publish(engine, snapshots, str(step)) for step in range(8)]
    engine.is_full = True
    _publish(engine, snapshots, "8")
    with pytest.raises(ServiceError, match="No space left"):
        _publish(engine, snapshots, "9")
    before = engine.num_tries
    for snapshot in published * 3:
        snapshots.use(engine, snapshot)
        assert snapshot.snapshot_id in engine._snapshots
        assert len(engine._snapshots) <= 6
    assert engine.num_tries - before <= 3 * len(published)  # one in vain says that the others would be
    engine.is_full = False
    snapshots.admit(engine)
    assert len(engine._snapshots) == 4


def test_files_of_an_earlier_process_are_deleted(tmp_path: Path) -> None:
    """Would catch a disk that fills up with what crashed servers left."""
    (tmp_path / "snapshots" / "stale").mkdir(parents=True)
    _snapshots(tmp_path, max_bytes=0)
    assert not (tmp_path / "snapshots").exists()


def _bounded(tmp_path: Path, engine: FakeEngine, num_files: int) -> Snapshots:
    """Room for one snapshot in memory beside the one used last, and for few files."""
    for model_id in ("m", "n"):
        engine.create_model(model_id, "cookhouse/tiny", LORA)
    return _snapshots(tmp_path, max_bytes=VOCAB_SIZE * 8, max_file_bytes=num_files * 2**20)


def test_what_was_published_last_and_what_is_sampled_from_stays(tmp_path: Path) -> None:
    """Would catch the weights of a client dropped under its running sample, and those of a model that sits idle."""
    engine = FakeEngine()
    snapshots = _bounded(tmp_path, engine, num_files=3)
    idle = _publish(engine, snapshots, "idle", model_id="n", owner="other")
    busy = _publish(engine, snapshots, "busy")
    busy.num_samples = 1
    for step in range(20):
        _publish(engine, snapshots, str(step))
    for snapshot in (idle, busy):
        snapshots.use(engine, snapshot)
        assert snapshot.error is None


def test_the_tenant_with_the_most_files_gives_way(tmp_path: Path) -> None:
    """Would catch one tenant's steps that cost another its weights."""
    engine = FakeEngine()
    snapshots = _bounded(tmp_path, engine, num_files=6)
    others = [_publish(engine, snapshots, f"other-{i}", model_id="n", owner="other") for i in range(2)]
    mine = [_publish(engine, snapshots, f"mine-{i}") for i in range(20)]
    assert [snapshot.error for snapshot in others] == [None, None]
    assert sum(snapshot.error is not None for snapshot in mine) == 20 - 6 + 2 - 1


def test_without_anything_that_can_go_no_more_weights_are_published(tmp_path: Path) -> None:
    engine = FakeEngine()
    snapshots = _bounded(tmp_path, engine, num_files=2)
    for index in range(4):
        engine.create_model(str(index), "cookhouse/tiny", LORA)
        _publish(engine, snapshots, f"s{index}", model_id=str(index))
    with pytest.raises(
        InputError,
        match=r"take 2\.00 MiB in files, of 2\.00 MiB that they may, .*; end sessions.* --max-snapshot-file-bytes",
    ):
        _publish(engine, snapshots, "one more")
    assert len(engine._snapshots) == 2
    assert len(list((tmp_path / "snapshots").iterdir())) == 2


def test_weights_of_a_checkpoint_are_read_from_there_again(tmp_path: Path) -> None:
    engine = FakeEngine()
    snapshots = _bounded(tmp_path, engine, num_files=2)
    engine._model("m").bias_V[:] = 7
    engine.snapshot("m", "c")
    engine.copy_snapshot("c", is_durable=True)(tmp_path / "checkpoint")
    loaded = Snapshot(
        snapshot_id="c", owner="someone", base_model=TINY_MODEL, lora=LORA, folder=tmp_path / "checkpoint"
    )
    snapshots.add(engine, loaded)
    for step in range(10):
        _publish(engine, snapshots, str(step))
    assert "c" not in snapshots._held
    snapshots.use(engine, loaded)
    assert (engine._snapshots["c"] == 7).all()
    for step in range(10, 20):
        _publish(engine, snapshots, str(step))
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(InputError, match="has been deleted"):
        snapshots.use(engine, loaded)


def test_files_are_written_beside_the_engine_which_waits_only_for_its_memory(tmp_path: Path) -> None:
    """Would catch training that stands still while the disk is busy, and a busy disk that lets memory fill."""
    engine = SlowDisk()
    engine.create_model("m", "cookhouse/tiny", LORA)
    with ThreadPoolExecutor(max_workers=1) as writer:
        snapshots = _snapshots(tmp_path, max_bytes=2 * VOCAB_SIZE * 8, writer=writer)
        for step in range(3):
            _publish(engine, snapshots, str(step))  # the third begins the writing of the first, and goes on
        assert engine.is_writing.wait(10)
        assert len(engine._snapshots) == 3
        assert not (tmp_path / "snapshots" / "0").exists()
        threading.Timer(0.05, engine.may_write.set).start()
        _publish(engine, snapshots, "3")
        assert set(engine._snapshots) == {"1", "2", "3"}
    assert engine.writers.isdisjoint({threading.get_ident()})


class SlowDisk(FakeEngine):
    """Writes a snapshot when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_writing, self.may_write = threading.Event(), threading.Event()
        self.writers: set[int] = set()

    def copy_snapshot(self, snapshot_id: str, *, is_durable: bool) -> Callable[[Path], None]:
        write = super().copy_snapshot(snapshot_id, is_durable=is_durable)

        def write_when_it_may(folder: Path) -> None:
            self.writers.add(threading.get_ident())
            self.is_writing.set()
            assert self.may_write.wait(10)
            write(folder)

        return write_when_it_may


def test_files_hold_the_precision_that_weights_have(tmp_path: Path) -> None:
    """Would catch files twice as large as what they hold, and weights that change on their way through one."""
    sizes = {}
    for precision in ("float32", "bfloat16"):
        engine = TorchEngine(base_models=[TINY_MODEL], device="cpu", precision=precision)
        engine.create_model("m", TINY_MODEL, LoraSpec(rank=8))
        engine._model("m").params.normal_(generator=torch.Generator().manual_seed(1))
        engine.snapshot("m", "s")
        folder = tmp_path / precision
        engine.copy_snapshot("s", is_durable=False)(folder)
        sizes[precision] = sum(file.stat().st_size for file in folder.iterdir())
        assert sizes[precision] < engine.snapshot_bytes("s") + 2**15
        engine.load_snapshot("t", TINY_MODEL, LoraSpec(rank=8), folder)
        assert torch.equal(engine._snapshots["s"][1].flat, engine._snapshots["t"][1].flat)
        engine.load_state("n", TINY_MODEL, LoraSpec(rank=8), folder, with_optimizer=False)
        assert torch.equal(engine._model("n").params, engine._snapshots["s"][1].flat.float())
    assert sizes["bfloat16"] < 0.6 * sizes["float32"]


@pytest.mark.parametrize("seed", range(5))
def test_random_use_keeps_every_bound_and_every_client_its_weights(tmp_path: Path, seed: int) -> None:
    """Would catch one that is dropped twice, and files or memory that are counted wrong."""
    rng = np.random.default_rng(seed)
    engine = FakeEngine()
    snapshots = _bounded(tmp_path, engine, num_files=4)
    snapshots._max_bytes *= 3
    alive: list[tuple[Snapshot, int]] = []
    for step in range(200):
        model_id = str(rng.choice(["m", "n"]))
        engine._model(model_id).bias_V[:] = step
        alive.append((_publish(engine, snapshots, str(step), model_id=model_id, owner=model_id), step))
        for index in rng.integers(len(alive), size=3):
            snapshot, value = alive[index]
            if snapshot.error is None:
                snapshots.use(engine, snapshot)
                assert (engine._snapshots[snapshot.snapshot_id] == value).all()
        if rng.random() < 0.2:
            snapshots.free(engine, alive.pop(rng.integers(len(alive)))[0])
        assert set(engine._snapshots) == set(snapshots._in_memory)
        assert len(engine._snapshots) <= 4
        folder = tmp_path / "snapshots"
        files = {path.name for path in folder.iterdir()} if folder.exists() else set()
        assert files == {name for name, held in snapshots._held.items() if held.takes_disk}
        assert snapshots._file_bytes == len(files) * 2**20 <= 4 * 2**20
    assert sum(snapshot.error is not None for snapshot, _ in alive) > 20


def _damage(folder: Path) -> None:
    """So that it can still be read."""
    (folder / "state.json").write_text((folder / "state.json").read_text() + " ")


def test_weights_that_were_put_away_and_have_changed_are_not_sampled_from(tmp_path: Path) -> None:
    """Would catch samples of other weights than were published, and weights that are whole elsewhere and given up."""
    engine = FakeEngine()
    snapshots = _bounded(tmp_path, engine, num_files=4)
    engine.snapshot("m", "c")
    engine.copy_snapshot("c", is_durable=True)(tmp_path / "checkpoint")
    sha256 = checksums(tmp_path / "checkpoint")
    kept = Snapshot(
        snapshot_id="c",
        owner="someone",
        base_model=TINY_MODEL,
        lora=LORA,
        folder=tmp_path / "checkpoint",
        sha256=sha256,
    )
    snapshots.add(engine, kept)
    published = _publish(engine, snapshots, "p")
    for step in range(2):
        _publish(engine, snapshots, str(step))
    for name in ("c", "p"):
        _damage(tmp_path / "snapshots" / name)
    snapshots.use(engine, kept)
    for _ in range(2):
        with pytest.raises(DamagedError, match="has changed since it was saved"):
            snapshots.use(engine, published) if published.error is None else _raise(published.error)
    _damage(tmp_path / "checkpoint")
    for step in range(2, 12):
        _publish(engine, snapshots, str(step))
    with pytest.raises(DamagedError, match="has changed since it was saved"):
        snapshots.use(engine, kept)


def _raise(error: Exception) -> None:
    raise error
