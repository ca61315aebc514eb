"""What a driver does when a cluster does not answer, without one."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from cookhouse.engine.transports.ray import driver as driver_module
from cookhouse.engine.transports.ray.addresses import LOCAL

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_is_here")]
GONE = "Ray's head is gone"


class FakeCluster:
    """Answers as it is told, and then says that the server is gone."""

    def __init__(self, driver: Any, *answers: str | None) -> None:
        self._driver = driver
        self._answers = iter(answers)

    def leave(self) -> None:
        pass

    def why_gone(self) -> str | None:
        answer = next(self._answers, "over")
        if answer == "over":
            self._driver._over.set()
            return None
        return answer


class FakeRelay:
    def __init__(self) -> None:
        self.ended: list[str] = []

    def lose(self, reason: str) -> None:
        self.ended.append(reason)

    def end(self) -> None:
        self.ended.append("in order")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("_WATCH_SECONDS", "_FLUSH_SECONDS"):
        monkeypatch.setattr(driver_module, name, 0.01)
    ours, theirs = socket.socketpair()
    needs = {"num_cpus": 1, "num_gpus": None, "memory_bytes": None}
    with ours, theirs:
        yield driver_module._Driver(
            theirs,
            {"address": LOCAL, "needs": needs, "bundles": {}},
            lambda: None,
            lambda *_: pytest.fail("no worker is made"),
        )


@pytest.mark.parametrize(
    ("answers", "ended", "code"),
    [
        ((GONE, GONE, None, GONE, GONE, None), "in order", 0),
        ((GONE, GONE, GONE, None, None), GONE, 1),
    ],
)
def test_a_cluster_is_given_up_once_for_a_reason(driver: Any, answers: Any, ended: str, code: int) -> None:
    """Would catch workers that end without one, where it is back when it was to be told."""
    relay = FakeRelay()
    driver._relays.append(relay)
    assert driver._watch(FakeCluster(driver, *answers)) == code
    assert relay.ended == [ended]
