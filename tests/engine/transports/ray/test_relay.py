"""One worker as the driver has it, without a cluster: whatever ends it is told once, and ends its actor."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cookhouse.engine.contract import Event, Lost, Room, Up
from cookhouse.engine.transports.messages import encode
from tests.engine.transports.calls import do, options
from tests.engine.transports.ray.fake_ray import FakeActor, pretend
from tests.waiting import wait_until

if TYPE_CHECKING:
    from cookhouse.engine.transports.ray.relay import Relay

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]
RELAY = "cookhouse.engine.transports.ray.relay"


class Node:
    """A place with an actor, whose events wait in a queue; an exception there is raised."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[Event] = []
        self.ended: list[str] = []
        """What was done to the actor and its place."""
        self.answers = True
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.actor = FakeActor({"submit": lambda *_: None, "leave": lambda: None})
        self.actor.events = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._stream))  # type: ignore[attr-defined]
        pretend(monkeypatch)
        monkeypatch.setattr("ray.kill", self._kill)
        monkeypatch.setattr("ray.util.placement_group_table", lambda _: {"bundles_to_node_id": {0: "here"}})
        monkeypatch.setattr("ray.util.remove_placement_group", lambda _: self.ended.append("given back"))
        monkeypatch.setattr(f"{RELAY}.make_actor", lambda *_: self.actor)
        monkeypatch.setattr(f"{RELAY}.begin", lambda *_: None)
        monkeypatch.setattr(f"{RELAY}.answers", lambda *_: self.answers)
        monkeypatch.setattr(f"{RELAY}._WATCH_SECONDS", 0.01)
        self.relay = self._relay(folder)
        self._running = threading.Thread(target=self.relay.run, daemon=True)

    def start(self) -> None:
        self._running.start()
        self.tell(Up(worker="w1", base_models=(), description="fake", room=Room(free_bytes=0, base_models=())))
        wait_until(lambda: self.told)

    def tell(self, event: Event) -> None:
        self._events.put(b"".join(encode(event)))

    def losses(self) -> list[str]:
        """Why it was lost, once all has ended."""
        wait_until(lambda: not self._running.is_alive())
        names = {"sender", "watcher"}
        wait_until(lambda: not any(thread.name in names for thread in threading.enumerate()))
        assert self.ended == ["killed", "given back"]
        return [event.reason for event in self.told if isinstance(event, Lost)]

    def _relay(self, folder: Path) -> "Relay":
        from cookhouse.engine.transports.ray.relay import Relay

        node = SimpleNamespace(node_id="here", name="n1", port=1, total={"CPU": 1.0})
        cluster: Any = SimpleNamespace(node_id="here", place=lambda *_: ("place", {"CPU": 1.0}), node=lambda _: node)
        shelf: Any = None
        return Relay(
            cluster,
            shelf,
            options(folder),
            {},
            load=lambda: None,
            make=lambda *_: None,  # type: ignore[arg-type]
            tell=self.told.extend,
            doubt=lambda: None,
        )

    def _stream(self) -> Iterator[Any]:
        while True:
            event = self._events.get()
            if event is None:
                return
            yield lambda event=event: self._taken(event)

    def _taken(self, event: Any) -> Any:
        if isinstance(event, Exception):
            raise event
        return event

    def _kill(self, _: Any) -> None:
        from ray.exceptions import ActorDiedError

        self.ended.append("killed")
        self._events.put(ActorDiedError())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def failing(error: Exception) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return SimpleNamespace(remote=fail)


def test_a_worker_is_told_with_its_node(node: Node) -> None:
    """Would catch an operator who cannot tell on which machine a worker is."""
    node.start()
    (up,) = node.told
    assert isinstance(up, Up)
    assert up.node == "n1"
    node.relay.end()
    assert node.losses() == []


def test_a_command_that_cannot_be_sent_ends_the_actor(node: Node) -> None:
    """Would catch an actor that keeps its GPU where another is to have it, and commands that nobody sends any more."""
    node.actor.submit = failing(ValueError("no such thing"))  # type: ignore[attr-defined]
    node.start()
    node.relay.submit([do("pid")])
    assert node.losses() == ["commands cannot be sent: ValueError: no such thing"]


def test_a_call_that_does_not_arrive_is_noticed(node: Node) -> None:
    """Would catch a worker that waits for ever for a number that never comes."""
    from ray.exceptions import ActorUnavailableError

    def fail(*_: Any) -> None:
        raise ActorUnavailableError("it is out of reach", None)

    node.actor.submit = SimpleNamespace(remote=lambda *_: fail)  # type: ignore[attr-defined]
    node.start()
    node.relay.submit([do("pid")])
    (reason,) = node.losses()
    assert reason.startswith("a command did not arrive: ")


def test_a_silent_node_loses_its_actor(node: Node) -> None:
    """Would catch an actor that computes on where its node comes back, beside the one in its place."""
    node.start()
    node.answers = False
    assert node.losses() == ["its node n1 does not answer"]


def test_what_the_actor_says_of_its_end_is_told_once(node: Node) -> None:
    node.start()
    node.tell(Lost(worker="w1", reason="no memory"))
    assert node.losses() == ["no memory"]


def test_no_thread_waits_for_one_that_was_hung_up(node: Node) -> None:
    """Would catch a thread, and all that it holds, kept for each worker that a server has had."""
    node.start()
    node.relay.end()
    assert node.losses() == []
