import asyncio
import json
import time
from itertools import count

import pytest

from cookhouse.errors import InputError
from cookhouse.server.refusals import GoneError, NotFoundError
from cookhouse.server.sequencer.futures import Future, Futures, Result

pytestmark = pytest.mark.anyio
DONE = Result.of_json({"done": 1})
LARGE = Result(body=b"0" * 10_000)


_NUMBERS = count()


def opened(result_seconds: float = 100.0, max_sample_bytes: int = 10**6, max_training_bytes: int = 10**6) -> Futures:
    return Futures(
        result_seconds=result_seconds,
        max_unfetched_sample_bytes=max_sample_bytes,
        max_unfetched_training_bytes=max_training_bytes,
    )


def new(futures: Futures, *, owner: str = "me", is_sample: bool = False) -> Future:
    if is_sample:
        return futures.create_sample(owner=owner, session_id="s")
    return futures.create(f"train-{next(_NUMBERS)}", owner=owner, session_id="s")


async def test_a_waiter_is_woken_at_once() -> None:
    """Would catch polling: an answer after a tick of some interval."""
    futures = opened()
    future = new(futures)
    waiting = asyncio.create_task(futures.wait(future, 60))
    await asyncio.sleep(0.01)
    started_at = time.monotonic()
    futures.finish(future, DONE)
    assert await waiting == DONE
    assert time.monotonic() - started_at < 1.0


async def test_a_long_poll_ends_without_a_result() -> None:
    """Would catch a request held past the SDK's patience."""
    futures = opened()
    assert await futures.wait(new(futures), 0.01) is None


async def test_closing_sends_waiters_away() -> None:
    """Would catch a shutdown that waits for open long polls."""
    futures = opened()
    waiting = asyncio.create_task(futures.wait(new(futures), 60))
    await asyncio.sleep(0.01)
    futures.close()
    assert await asyncio.wait_for(waiting, 5) is None
    assert await asyncio.wait_for(futures.wait(new(futures), 60), 5) is None


async def test_results_survive_being_fetched() -> None:
    """Would catch a result that is lost when its first answer is."""
    futures = opened(result_seconds=100.0)
    future = new(futures)
    futures.finish(future, DONE)
    futures.finish(future, Result.of_error(InputError("late")))
    for _ in range(3):
        assert await futures.wait(futures.get(future.request_id, "me"), 0) == DONE
    futures.sweep()
    assert len(futures) == 1
    assert future.fetched_at is not None
    future.fetched_at -= 101
    futures.sweep()
    with pytest.raises(NotFoundError):
        futures.get(future.request_id, "me")


async def test_a_result_is_not_kept_for_as_long_as_somebody_asks() -> None:
    """Would catch a clock that each fetch starts anew: a client that polls in a loop would fill the memory."""
    futures = opened(result_seconds=100.0)
    future = new(futures)
    futures.finish(future, DONE)
    await futures.wait(future, 0)
    assert future.fetched_at is not None
    future.fetched_at -= 101
    await futures.wait(future, 0)
    futures.sweep()
    assert len(futures) == 0


async def test_unfetched_training_results_stay() -> None:
    """Would catch a training result dropped early, which the SDK cannot recover from."""
    futures = opened(result_seconds=0.0, max_sample_bytes=0)
    future = new(futures)
    futures.finish(future, DONE)
    futures.sweep()
    assert futures.get(future.request_id, "me") is future


async def test_unfetched_samples_are_bounded() -> None:
    """Would catch memory that grows with samples nobody fetches, or a loss that the SDK does not recover from."""
    futures = opened(max_sample_bytes=25_000)
    samples = [new(futures, is_sample=True) for _ in range(4)]
    for sample in samples:
        futures.finish(sample, LARGE)
    with pytest.raises(GoneError):
        futures.get(samples[0].request_id, "me")
    assert [await futures.wait(sample, 0) for sample in samples[2:]] == [LARGE] * 2


async def test_unfetched_training_results_are_bounded() -> None:
    """Would catch memory that one tenant fills, and another tenant's results dropped for it."""
    futures = opened(max_training_bytes=45_000)
    other = new(futures, owner="other")
    futures.finish(other, LARGE)
    mine = [new(futures) for _ in range(9)]
    futures.finish(mine[0], LARGE)
    assert await futures.wait(mine[0], 0) == LARGE  # one that was fetched no longer counts
    for future in mine[1:]:
        futures.finish(future, LARGE)
    kept = [future for future in mine if futures.peek(future.request_id) is not None]
    assert kept == [mine[0], *mine[-3:]]
    assert futures.get(other.request_id, "other") is other
    with pytest.raises(NotFoundError, match="because more than 45000 bytes of results waited to be fetched"):
        futures.get(mine[1].request_id, "me")


async def test_results_without_a_body_are_bounded_too() -> None:
    """Would catch memory that grows with steps nobody asks about."""
    futures = opened(max_training_bytes=100_000)
    for _ in range(1000):
        futures.finish(new(futures), DONE)
    assert len(futures) < 100


async def test_who_waits_gets_a_result_that_is_too_large_to_keep() -> None:
    futures = opened(max_training_bytes=0)
    future = new(futures)
    waiting = asyncio.create_task(futures.wait(future, 60))
    await asyncio.sleep(0.01)
    futures.finish(future, LARGE)
    assert await waiting == LARGE


async def test_another_tenant_gets_nothing() -> None:
    """Would catch a result handed to whoever knows its id."""
    futures = opened()
    future = new(futures)
    with pytest.raises(NotFoundError):
        futures.get(future.request_id, "someone else")


async def test_an_ended_session_starts_the_clock() -> None:
    """Would catch results that are kept for ever because their client is gone."""
    futures = opened(result_seconds=0.0)
    futures.finish(new(futures), DONE)
    futures.start_clock("s")
    futures.sweep()
    assert len(futures) == 0


def test_failures_say_who_is_to_blame() -> None:
    """Would catch a user's mistake reported as the server's, and categories the SDK does not know."""
    assert json.loads(Result.of_error(InputError("bad token")).body) == {"error": "bad token", "category": "user"}
    fault = json.loads(Result.of_error(KeyError("x")).body)
    assert fault["category"] == "server"
    assert "KeyError" in fault["error"]
