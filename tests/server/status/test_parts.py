"""The parts of which a status is made."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from starlette.types import Message, Receive, Scope, Send

from cookhouse.engine.contract import Account, Amount
from cookhouse.server.access import middleware
from cookhouse.server.access.middleware import Latencies, Timed
from cookhouse.server.pool.meter import RecentUse
from cookhouse.server.refusals import StorageError
from cookhouse.server.status.cached import Cached


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_rates_are_of_the_last_minute(clock: Clock) -> None:
    """Would catch tokens that stay in a rate for ever, and a young server whose rate is too low."""
    recent = RecentUse()
    clock.now += 10
    recent.count([Amount(Account("a", "s"), "sampled_tokens", 30.0), Amount(Account("b", "s"), "sampled_tokens", 10.0)])
    recent.count([Amount(Account("a", "t"), "sampled_tokens", 20.0)])
    assert recent.rates() == {"a": {"sampled_tokens": 5.0}, "b": {"sampled_tokens": 1.0}}
    clock.now += 40
    recent.count([Amount(Account("a", "s"), "trained_tokens", 60.0)])
    clock.now += 15
    assert recent.rates()["a"] == {"sampled_tokens": 50 / 60, "trained_tokens": 1.0}
    clock.now += 10
    assert recent.rates() == {"a": {"trained_tokens": 1.0}}
    clock.now += 60
    assert recent.rates() == {}


def test_a_minute_of_use_takes_so_much_room_and_no_more(clock: Clock) -> None:
    recent = RecentUse()
    for _ in range(1000):
        clock.now += 1
        recent.count([Amount(Account("a", "s"), "sampled_tokens", 1.0)])
    assert len(recent._seconds) == 61
    assert recent.rates() == {"a": {"sampled_tokens": 1.0}}


def test_quantiles_are_of_the_answers_of_the_window(clock: Clock) -> None:
    """Would catch answers of an hour ago among those of now, and a quantile beside its rank."""
    times = Latencies()
    times.add("GET /b", clock.now - 9.0, 200)
    clock.now += middleware.WINDOW_SECONDS + 1
    for index in range(100):
        times.add("GET /a", clock.now - (index + 1), 200 if index < 90 else 503 if index < 93 else 404)
    (found,) = times.times()
    assert (found.route, found.number, found.num_failed, found.num_refused) == ("GET /a", 100, 3, 7)
    assert (found.median_seconds, found.p95_seconds) == (50.0, 95.0)


@pytest.mark.anyio
async def test_a_fault_is_an_answer_too() -> None:
    """Would catch an operator who is told that no request has failed, since those that did had no answer of ours."""
    latencies = Latencies()
    sent: list[Message] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        scope["endpoint"] = scope["path"]
        if scope["path"] == "/late":
            await send({"type": "http.response.start", "status": 200})
        if scope["path"] == "/gone":
            await send({"type": "http.response.start", "status": 499})
            return
        raise RuntimeError("a bug")

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    timed = Timed(app, latencies, {"/early": "GET /early", "/late": "GET /late", "/gone": "GET /gone"})
    for path in ("/early", "/late"):
        with pytest.raises(RuntimeError, match="a bug"):
            await timed({"type": "http", "path": path}, receive, send)
    await timed({"type": "http", "path": "/gone"}, receive, send)
    found = {one.route: (one.number, one.num_failed) for one in latencies.times()}
    assert found == {"GET /early": (1, 1), "GET /late": (1, 0)}


@pytest.mark.anyio
async def test_who_asks_waits_no_longer_than_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a page that hangs with the database that it shall tell of."""
    free = threading.Event()

    def read() -> int:
        free.wait(30)
        return 3

    cached = Cached(read, seconds=3600)
    monkeypatch.setattr("cookhouse.server.status.cached._PATIENCE_SECONDS", 0.01)
    assert (await cached.get()).value is None
    free.set()
    monkeypatch.setattr("cookhouse.server.status.cached._PATIENCE_SECONDS", 30.0)
    assert (await cached.get()).value == 3


@pytest.mark.anyio
async def test_a_failure_is_told_beside_what_was_read_before() -> None:
    answers: Iterator[int | StorageError] = iter([5, StorageError("the disk is full"), 6])

    def read() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cached = Cached(read, seconds=0.0)
    assert (await cached.get()).value == 5
    failed = await cached.get()
    assert (failed.value, failed.problem) == (5, "the disk is full")
    again = await cached.get()
    assert (again.value, again.problem) == (6, None)


@pytest.mark.anyio
async def test_many_who_ask_at_once_are_one_reading() -> None:
    count = []
    cached = Cached(lambda: count.append(1), seconds=3600)
    await asyncio.gather(*(cached.get() for _ in range(20)))
    assert len(count) == 1
