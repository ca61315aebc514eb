"""Who looks at the same thing, and what one that cannot be read does to the others."""

import asyncio

import pytest

from cookhouse.view.watching import Watcher

pytestmark = pytest.mark.anyio


async def test_who_joins_is_told_what_is_there_now() -> None:
    # Catches a page that was made a moment ago, and is told of a state before that as if it were new.
    watcher = Watcher(interval_seconds=3600)
    there = ["old"]
    async with watcher.looking("list", lambda: there[0]) as first:
        assert await anext(first.values()) == "old"
        there[0] = "new"
        async with watcher.looking("list", lambda: there[0]) as second:
            assert await anext(second.values()) == "new"


async def test_what_cannot_be_read_ends_its_own_streams_alone(caplog: pytest.LogCaptureFixture) -> None:
    # Catches one broken run at which somebody looks, and all other pages lose their connection each second.
    watcher = Watcher(interval_seconds=0.01)
    is_broken = False
    count = 0

    def broken() -> int:
        if is_broken:
            raise ValueError("no row")
        return 0

    def counted() -> int:
        nonlocal count
        count += 1
        return count

    async with watcher.looking("broken", broken) as one, watcher.looking("whole", counted) as other:
        is_broken = True
        assert [value async for value in one.values()] == [0]
        before = count
        async for value in other.values():
            if value is not None and value > before + 1:
                break
        else:
            pytest.fail("the other ended, too")
    assert "no row" in caplog.text


async def test_the_end_of_the_server_ends_all() -> None:
    watcher = Watcher(interval_seconds=3600)
    async with watcher.looking("list", lambda: 1) as look:
        asyncio.get_running_loop().call_soon(watcher.end)
        assert [value async for value in look.values()] == [1]
