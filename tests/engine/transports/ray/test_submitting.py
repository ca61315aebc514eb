"""Commands on their way to an actor, without a cluster: nobody waits for another's files, and no room is no end."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cookhouse.engine.contract import Command, Event, Failed, Forget, Inspect, Load, LoraSpec
from cookhouse.engine.transports.messages import decode_all
from tests.engine.transports.calls import ACCOUNT, a_pass
from tests.engine.transports.ray.fake_ray import FakeActor, pretend
from tests.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]


class Sending:
    """A submitter in a thread of its own, what its actor got, and what it told."""

    def __init__(self) -> None:
        from cookhouse.engine.transports.ray.shipping import ObjectCache, Shipping
        from cookhouse.engine.transports.ray.submitting import Submitter

        self.told: list[Event] = []
        self.lost: list[str] = []
        self.got: list[Command | None] = []
        self.is_open = threading.Event()
        """Whether commands are taken; at first they are."""
        self.is_open.set()
        self.is_written = threading.Event()
        self.is_writing = threading.Event()
        self.error: Exception | None = None
        """What Ray raises when commands are sent, once."""
        self.actor = FakeActor({"write": self._write})
        self.actor.submit = SimpleNamespace(remote=self._submit)  # type: ignore[attr-defined]
        self.submitter = Submitter(self.told.extend, self._or_lost)
        self.shipping = Shipping(
            self.actor,
            ObjectCache(2**30),
            "w1",
            tell=self.told.extend,
            submit=self.submitter.submit,
            lose=self.lost.append,
        )
        self.submitter.begin_files()
        self._thread = threading.Thread(target=self.submitter.run, args=(self.actor, self.shipping))
        self._thread.start()

    def end(self) -> None:
        self.is_written.set()
        self.submitter.end()
        self._thread.join(60)
        assert self.lost == []

    def _write(self, *_: Any) -> None:
        self.is_writing.set()
        assert self.is_written.wait(60)

    def _submit(self, _: int, frames: bytes) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        assert self.is_open.wait(60)
        self.got.extend(decode_all(frames))

    @contextlib.contextmanager
    def _or_lost(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.lost.append(f"{what}: {error}")


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    pretend(monkeypatch)
    sending = Sending()
    yield sending
    sending.end()


def test_a_model_is_freed_while_its_files_are_on_their_way(sending: Sending, tmp_path: Path) -> None:
    """Would catch a look at the worker, and so everybody, that waits for files; and files that nobody deletes."""
    (tmp_path / "a.bin").write_bytes(b"1234")
    load = Load(
        command_id="load",
        account=ACCOUNT,
        model_id="a",
        base_model="base",
        lora=LoraSpec(),
        url=tmp_path.as_uri(),
        with_optimizer=True,
    )
    inspect = Inspect(command_id="inspect", account=ACCOUNT)
    forget = Forget(command_id="", account=ACCOUNT, model_ids=("a",))
    sending.submitter.submit([load])
    assert sending.is_writing.wait(60)
    sending.submitter.submit([inspect, a_pass(1, 2), forget])
    wait_until(lambda: len(sending.got) == 3)
    assert sending.got[0] == inspect
    assert sending.got[2] == forget
    (failed,) = sending.told
    assert isinstance(failed, Failed)
    assert (failed.command_id, failed.failure.kind) == ("load", "canceled")
    sending.is_written.set()
    wait_until(lambda: len(sending.got) == 4)
    assert sending.got[3] == Forget(command_id="", account=ACCOUNT._replace(owner="", session_id=""), urls=URLS)


URLS = ("worker://w1/ray-1",)


def test_what_waits_for_no_files_is_canceled_by_the_worker(sending: Sending) -> None:
    """Would catch an answer that comes before those of commands that were sent ahead of it."""
    forget = Forget(command_id="", account=ACCOUNT, command_ids=("2",))
    sending.is_open.clear()
    sending.submitter.submit([a_pass(1, 2, "0")])
    sending.submitter.submit([a_pass(1, 2, "1"), a_pass(1, 2, "2"), forget])  # taken together
    sending.is_open.set()
    wait_until(lambda: any(isinstance(command, Forget) for command in sending.got))
    assert [command.command_id for command in sending.got if command is not None] == ["0", "1", "2", ""]
    assert sending.told == []


def test_commands_for_which_ray_has_no_room_fail_and_others_go_on(sending: Sending) -> None:
    """Would catch a worker that is lost, over and over, since a disk is full; and models that are not freed."""
    from ray.exceptions import ObjectStoreFullError

    forget = Forget(command_id="", account=ACCOUNT, model_ids=("a",))
    sending.error = ObjectStoreFullError("full")
    sending.submitter.submit([a_pass(1, 2, "1")])
    wait_until(lambda: sending.told)
    (failed,) = sending.told
    assert isinstance(failed, Failed)
    assert (failed.command_id, failed.failure.blame, failed.failure.kind) == ("1", "server", "disk")
    sending.error = ObjectStoreFullError("full")
    sending.submitter.submit([forget])
    wait_until(lambda: sending.got)
    assert sending.got == [forget]
