"""Catches a session that holds up the others which are taken over with it."""

import asyncio
import logging
from collections import Counter

import pytest

from cookhouse.server.leases import takeover
from cookhouse.server.leases.takeover import Takeover
from cookhouse.server.storage.store.failures import unreachable

pytestmark = pytest.mark.anyio


class Sessions:
    """What is taken over: some cannot be read, or fail, so many times."""

    def __init__(self, **failing: tuple[int, Exception]) -> None:
        self._failing = failing
        self.num_tries = Counter[str]()
        self.back: list[str] = []
        self.num_told = 0
        self.is_over = False
        self.taking = Takeover(
            self._take_over, on_back=self.back.append, on_tried=self._tell, is_over=lambda: self.is_over
        )

    async def _take_over(self, session_id: str) -> None:
        self.num_tries[session_id] += 1
        await asyncio.sleep(0)
        times, error = self._failing.get(session_id, (0, Exception()))
        if self.num_tries[session_id] <= times:
            raise error

    def _tell(self) -> None:
        self.num_told += 1

    async def until_back(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.back) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(takeover, "_FAILED_SECONDS", 0.01)
    monkeypatch.setattr(takeover, "_MOST_FAILED_SECONDS", 0.04)


async def test_one_that_cannot_be_read_holds_up_no_other() -> None:
    """Would catch a thousand sessions that wait since a file of one cannot be read now."""
    sessions = Sessions(bad=(10**6, unreachable("its disk is away")))
    others = [f"s{index}" for index in range(20)]
    sessions.taking.come(["bad", *others])
    await sessions.until_back(20)
    assert sorted(sessions.back) == sorted(others)
    assert "bad" in sessions.taking
    assert not any(name in sessions.taking for name in others)
    sessions.is_over = True
    await sessions.until_back(21)


async def test_one_that_fails_is_tried_again_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a traceback in the log every ten seconds for as long as the server runs."""
    sessions = Sessions(bad=(6, RuntimeError("a bug")))
    with caplog.at_level(logging.WARNING):
        sessions.taking.come(["bad", "good"])
        await sessions.until_back(2)
    assert sessions.back == ["good", "bad"]
    assert sessions.num_tries == {"bad": 7, "good": 1}
    assert [record.exc_info is not None for record in caplog.records] == [True, *[False] * 5]
    pauses = [record.args[1] for record in caplog.records[1:] if isinstance(record.args, tuple)]
    assert pauses == [0.02, 0.04, 0.04, 0.04, 0.04], "later and later"


async def test_what_came_together_is_told_of_together() -> None:
    """Would catch a line for each of a thousand sessions, and none for one that comes back late."""
    sessions = Sessions(s1=(1, RuntimeError("a bug")))
    sessions.taking.come(["s0", "s1", "s2"])
    sessions.taking.come(["s0"])
    await sessions.until_back(3)
    assert sessions.num_told == 2
    assert sessions.num_tries == {"s0": 1, "s1": 2, "s2": 1}
