"""`view=true`: a run that serves its page."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.waiting import PATIENCE_SECONDS

from cookhouse.adapters import Adapters
from cookhouse.recipes import run_async
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.telemetry import Record
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., SupervisedConfig]


class Person:
    """Sits at a terminal."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.records: list[Record] = []
        self.has_heard = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def write(self, record: Record) -> None:
        self.records.append(record)

    def tell(self, text: str) -> None:
        self.told.append(text)
        self._loop.call_soon_threadsafe(self.has_heard.set)

    def close(self) -> None: ...


async def _run(config: SupervisedConfig) -> tuple[Person, int | None]:
    """Who was told of the page, and what that answers while the run goes, which waits for it."""
    person, service = Person(), FakeService()
    status: int | None = None

    async def connect() -> FakeService:
        nonlocal status
        await person.has_heard.wait()
        status = await _status(person.told[0])
        return service

    await run_async("supervised", config, adapters=Adapters(service=connect, sinks=[person]))
    return person, status


async def _status(told: str) -> int | None:
    """What the list answers at the address that was told; None where nobody does."""
    page = told.partition("http://")[2].partition(" ")[0]
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        try:
            return (await client.get("http://" + page.replace("/runs/run/-/", "/api/"))).status_code if page else None
        except httpx.ConnectError:
            return None


async def test_the_page_is_served_as_long_as_the_run_goes(make_config: MakeConfig, tmp_path: Path) -> None:
    # Catches an address that leads nowhere, a page that stays when the run has ended, and a token in the run's log or
    # with a tool that others read.
    person, status = await _run(make_config(view=True))
    (told,) = person.told
    assert told.startswith("page: http://127.0.0.1:")
    assert status == 200
    assert await _status(told) is None
    token = told.partition("token=")[2].partition(" ")[0]
    assert len(token) >= 32
    assert not any(token in repr(record) for record in person.records)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert not [path for path in files if token.encode() in path.read_bytes()]


async def test_a_page_that_cannot_be_served_stops_no_run(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cookhouse.view.beside.COMMAND", (sys.executable, "-c", "import sys; sys.exit('no socket')"))
    person, _ = await _run(make_config(view=True))
    assert person.told == [f"page: open it with cookhouse view {tmp_path}/run; not served: no socket"]
