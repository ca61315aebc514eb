"""Files on their way to a worker and back, without a cluster: what is told where one end is lost meanwhile."""

import hashlib
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cookhouse.engine.contract import (
    Command,
    Done,
    Event,
    Failed,
    Failure,
    Fetch,
    Forget,
    LoraSpec,
    Sample,
    SampleRequest,
    Saved,
    SaveSnapshot,
)
from tests.engine.transports.calls import ACCOUNT
from tests.engine.transports.ray.fake_ray import FakeActor, pretend

if TYPE_CHECKING:
    from cookhouse.engine.transports.ray.shipping import Shipping

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]
NO_MEMORY = Failure(blame="user", kind="memory", message="no memory for that")


class Worker:
    """The other end, and what shipping tells of it."""

    def __init__(self) -> None:
        self.sent: dict[str, bytes] = {}
        self.told: list[Event] = []
        self.submitted: list[Command] = []
        self.losses: list[str] = []
        self.sha256: dict[str, str] = {}
        self.is_unwanted = threading.Event()
        self.shipping: Shipping = self._shipping()

    def _shipping(self) -> "Shipping":
        from cookhouse.engine.transports.ray.shipping import ObjectCache, Shipping

        actor = FakeActor({"read": lambda *_: self.read(), "write": self.write, "sums": self.sums})
        return Shipping(
            actor,
            ObjectCache(2**30),
            "w1",
            tell=self.told.extend,
            submit=self.submitted.extend,
            lose=self.losses.append,
        )

    def read(self) -> bytes:
        return b"1234"

    def write(self, name: str, _: int, part: bytes) -> None:
        self.sent[name] = part

    def sums(self, folder: str, _: int) -> dict[str, list[tuple[int, int]]]:
        return {
            name.removeprefix(f"{folder}/"): [(len(data), zlib.crc32(data))]
            for name, data in self.sent.items()
            if name.startswith(folder)
        }

    def save(self, folder: Path) -> None:
        """Have it save a snapshot, and wait until it is here, or not."""
        self.shipping.outward(
            SaveSnapshot(command_id="save", account=ACCOUNT, snapshot_id="s", url=folder.absolute().as_uri())
        )
        saved = Saved(url="worker://w1/ray-1", form="weights", sizes={"a.bin": 4}, sha256=self.sha256)
        assert self.shipping.inward(Done(command_id="save", output=saved)) is None
        self.shipping.close()

    def carry(self, folder: Path, command_id: str) -> Fetch:
        """A fetch whose files have been sent, or cannot be."""
        fetch = Fetch(
            command_id=command_id,
            account=ACCOUNT,
            snapshot_id="s",
            base_model="base",
            lora=LoraSpec(),
            url=folder.absolute().as_uri(),
        )
        carried = self.shipping.carry(fetch, self.is_unwanted)
        assert isinstance(carried, Fetch)
        return carried

    def fetch(self, folder: Path, command_id: str) -> Any:
        """The command as it is sent."""
        return self.shipping.outward(self.carry(folder, command_id))

    def failure(self, command_id: str) -> Failure:
        """That of a command that the worker could not do."""
        failed = self.shipping.inward(Failed(command_id=command_id, failure=NO_MEMORY))
        assert isinstance(failed, Failed)
        return failed.failure

    def sample(self, command_id: str) -> None:
        request = SampleRequest(
            request_id=command_id, base_model="base", snapshot_id="s", prompt_T=np.zeros(1, dtype=np.int64), seed=0
        )
        self.shipping.outward(Sample(command_id=command_id, account=ACCOUNT, request=request))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    pretend(monkeypatch)
    return Worker()


def test_a_save_is_told_with_its_name_here(worker: Worker, tmp_path: Path) -> None:
    worker.save(tmp_path / "saved")
    (done,) = worker.told
    assert isinstance(done, Done)
    assert done.output == Saved(url=(tmp_path / "saved").as_uri(), form="weights", sizes={"a.bin": 4})
    assert (tmp_path / "saved" / "a.bin").read_bytes() == b"1234"


def test_nothing_gets_its_name_after_a_loss(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a checkpoint of nobody's, in the way of the same save by another worker."""

    def read() -> bytes:
        worker.shipping.abandon()
        return b"1234"

    monkeypatch.setattr(worker, "read", read)
    worker.save(tmp_path / "saved")
    assert worker.told == []
    assert list(tmp_path.iterdir()) == []


def test_a_save_whose_worker_is_lost_is_no_failure_of_its_own(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a tenant who is told of a bug, where another worker would have saved."""
    from ray.exceptions import ActorDiedError

    def read() -> bytes:
        raise ActorDiedError

    monkeypatch.setattr(worker, "read", read)
    worker.save(tmp_path / "saved")
    assert worker.told == []
    (reason,) = worker.losses
    assert reason.startswith("what it saved cannot be brought: ")
    assert list(tmp_path.iterdir()) == []


def test_a_second_fetch_makes_up_for_the_first(worker: Worker, tmp_path: Path) -> None:
    """Would catch samples that fail for a checkpoint that is there, and files at the worker that nobody deletes."""
    folder = tmp_path / "weights"
    assert worker.fetch(folder, "first").url == "worker://w1/ray-1-unsent"
    worker.sample("early")
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"1234")
    assert worker.fetch(folder, "second").url == "worker://w1/ray-2"
    worker.sample("late")
    assert worker.sent == {"ray-2/a.bin": b"1234"}
    assert worker.failure("early").kind == "damaged"
    assert worker.failure("late") == NO_MEMORY
    assert worker.submitted == []
    worker.shipping.inward(Done(command_id="second", output=None))
    (forget,) = worker.submitted
    assert isinstance(forget, Forget)
    assert forget.urls == ("worker://w1/ray-1",)


def test_files_that_came_damaged_are_not_read(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch weights that are computed with though a part of them was lost on its way."""
    (tmp_path / "a.bin").write_bytes(b"1234")
    monkeypatch.setattr(worker, "sums", lambda *_: {"a.bin": [(4, zlib.crc32(bytes(4)))]})
    worker.shipping = worker._shipping()
    assert worker.fetch(tmp_path, "first").url == "worker://w1/ray-1-unsent"
    failure = worker.failure("first")
    assert failure.kind == "disk"
    assert "not at the worker as they were sent" in failure.message


def test_files_of_a_fetch_that_is_canceled_are_not_kept(worker: Worker, tmp_path: Path) -> None:
    """Would catch files of nobody's at the worker, and those of an earlier fetch deleted while they are read."""
    (tmp_path / "a.bin").write_bytes(b"1234")
    worker.fetch(tmp_path, "first")
    worker.shipping.discard(worker.carry(tmp_path, "second"))
    (forgotten,) = worker.submitted
    assert isinstance(forgotten, Forget)
    assert forgotten.urls == ("worker://w1/ray-2",)
    worker.is_unwanted.set()
    worker.sent.clear()
    worker.shipping.discard(worker.carry(tmp_path, "third"))
    assert worker.sent == {}
    forget = worker.shipping.outward(Forget(command_id="", account=ACCOUNT, snapshot_ids=("s",)))
    assert isinstance(forget, Forget)
    assert forget.urls == ("worker://w1/ray-1",)


@pytest.mark.parametrize("name", ["ObjectStoreFullError", "OutOfDiskError"])
def test_no_room_in_ray_s_store_fails_what_needs_it(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Would catch a worker that is lost, over and over, since a disk is full."""
    import ray.exceptions

    def no_room(*_: object) -> Any:
        raise getattr(ray.exceptions, name)("no room")

    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.bin").write_bytes(b"1234")
    monkeypatch.setattr("ray.put", no_room)
    worker.fetch(tmp_path / "weights", "first")
    assert worker.failure("first").kind == "disk"
    monkeypatch.setattr(worker, "read", no_room)
    worker.save(tmp_path / "saved")
    (failed,) = worker.told
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "disk"
    assert worker.losses == []


def test_a_save_that_has_changed_on_its_way_fails(worker: Worker, tmp_path: Path) -> None:
    """Would catch a checkpoint whose digest is taken of bytes that nobody saved."""
    worker.sha256 = {"a.bin": hashlib.sha256(b"1235").hexdigest()}
    worker.save(tmp_path / "saved")
    (failed,) = worker.told
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "damaged"
    assert not (tmp_path / "saved").exists()
