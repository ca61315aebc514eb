"""A service that does not answer any more is noticed; one that answers with whatever it likes is not gone."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from cookhouse.errors import ServiceError
from cookhouse.telemetry import Telemetry
from cookhouse.training import Interrupt, Watch
from cookhouse.training.clients import watch

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(watch, "_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(watch, "_PROBE_SECONDS", 0.5)
    monkeypatch.setattr(watch, "_STOP_SECONDS", 0.1)


@asynccontextmanager
async def service(statuses: Iterator[int | None]) -> AsyncIterator[tuple[str, asyncio.Semaphore]]:
    """Its address, and what is released with every request; a status of None says nothing."""
    asked = asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                asked.release()
                if (status := next(statuses)) is not None:
                    writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode())
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()


def watching(url: str, interrupt: Interrupt, patience_seconds: float) -> asyncio.Task[None]:
    seen = Watch(url, patience_seconds=patience_seconds, interrupt=interrupt, telemetry=Telemetry())
    return asyncio.create_task(seen.until_gone())


@pytest.mark.parametrize("status", [None, 503])
async def test_silence_beyond_patience_ends_it(status: int | None) -> None:
    async with service(itertools.repeat(status)) as (url, asked):
        task = watching(url, Interrupt(), patience_seconds=0.05)
        with pytest.raises(ServiceError, match=f"the training service at {url} has not answered for"):
            await asyncio.wait_for(task, 60)
        assert not asked.locked(), "it was never asked"


async def test_nobody_there_is_silence() -> None:
    async with service(itertools.repeat(200)) as (url, _):
        pass
    with pytest.raises(ServiceError, match=r"connection attempts failed"):
        await asyncio.wait_for(watching(url, Interrupt(), patience_seconds=0.05), 60)


@pytest.mark.parametrize("status", [200, 401, 404])
async def test_an_answer_is_an_answer(status: int) -> None:
    """Would catch a service without that route, or behind a key, taken for one that is gone."""
    async with service(itertools.repeat(status)) as (url, asked):
        task = watching(url, Interrupt(), patience_seconds=0.2)
        async with asyncio.timeout(60):  # instead of for ever, where it looks no more
            for _ in range(40):  # looks at least a hundredth of a second apart: twice the patience
                await asked.acquire()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_one_look_is_no_silence_however_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a run that ends since its own process was suspended, by Ctrl-Z or with its machine, in a look."""
    now = itertools.count(0, 3600)
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: float(next(now))))
    statuses = itertools.chain([503], itertools.repeat(200))
    async with service(statuses) as (url, asked):
        task = watching(url, Interrupt(), patience_seconds=0.2)
        async with asyncio.timeout(60):
            for _ in range(3):
                await asked.acquire()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_silence_is_not_counted_while_the_run_itself_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a run that ends after SIGSTOP and SIGCONT, since a service was just being started again before."""
    now = itertools.chain([0.0, 0.0], itertools.count(3600, 3600))
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: float(next(now))))
    statuses = itertools.chain([503, 503, 503], itertools.repeat(200))
    async with service(statuses) as (url, asked):
        task = watching(url, Interrupt(), patience_seconds=60)
        async with asyncio.timeout(60):
            for _ in range(5):
                await asked.acquire()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_run_that_is_to_stop_has_less_patience() -> None:
    interrupt = Interrupt()
    async with service(itertools.repeat(None)) as (url, asked):
        task = watching(url, interrupt, patience_seconds=3600)
        async with asyncio.timeout(60):
            await asked.acquire()
        with interrupt.deferred():
            interrupt.request()
        with pytest.raises(ServiceError, match="has not answered"):
            await asyncio.wait_for(task, 60)
