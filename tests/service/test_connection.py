"""Which service is chosen from the environment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.recipes.events import Events

from cookhouse.adapters import ServiceAddress
from cookhouse.errors import InputError, ServiceError
from cookhouse.runs import FolderChoice, FolderSpec, open_folder, read_history
from cookhouse.service import connection
from cookhouse.service.connection import check_reachable, configured_service, open_connection
from cookhouse.telemetry import Event, Telemetry, TerminalSink, make_console
from cookhouse.training import Interrupt


def test_nothing_configured_means_the_embedded_service() -> None:
    assert configured_service({}) is None
    assert configured_service({"TINKER_API_KEY": "", "TINKER_BASE_URL": ""}) is None


def test_a_key_alone_means_the_hosted_service() -> None:
    assert configured_service({"TINKER_API_KEY": "tml-k"}) == ServiceAddress(base_url=None, api_key="tml-k")


def test_a_flag_beats_the_environment() -> None:
    environ = {"TINKER_API_KEY": "tml-k", "TINKER_BASE_URL": "http://a:1"}
    assert configured_service(environ, "http://b:2") == ServiceAddress(base_url="http://b:2", api_key="tml-k")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TINKER_API_KEY": "sk-secret"}, "starts with 'sk-s'; a key starts with 'tml-'"),
        ({"TINKER_BASE_URL": "http://127.0.0.1:8000"}, "no key for the service at http://127.0.0.1:8000"),
        ({"TINKER_BASE_URL": "127.0.0.1:8000", "TINKER_API_KEY": "tml-k"}, "is not the address of a service"),
        ({"TINKER_BASE_URL": "ftp://host", "TINKER_API_KEY": "tml-k"}, "is not the address of a service"),
    ],
)
def test_settings_that_cannot_work_are_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configured_service(environ)


@pytest.mark.anyio
async def test_reaching_a_service_that_listens_and_one_that_does_not() -> None:
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    address = ServiceAddress(base_url=f"http://127.0.0.1:{port}/prefix", api_key="tml-k")
    async with listening:
        await check_reachable(address)
    with pytest.raises(
        ServiceError,
        match=rf"no service answers at http://127.0.0.1:{port}/prefix: Connection refused; see that it runs",
    ):
        await check_reachable(address)


@pytest.mark.anyio
async def test_a_proxy_is_not_second_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    await check_reachable(ServiceAddress(base_url="https://service.invalid", api_key="tml-k"))


@pytest.mark.anyio
async def test_what_a_run_s_own_service_warns_of_stays_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches an engine that ends without a word on the terminal, in the log or on the page."""
    monkeypatch.chdir(tmp_path)

    @asynccontextmanager
    async def serving(*_: Any, **how: Any) -> AsyncIterator[Any]:
        how["say"]("restored 1 models")
        how["warn"]("the engine was lost: killed")
        raise ServiceError("enough")
        yield

    monkeypatch.setattr(connection, "local_server", serving)
    events: list[Event] = []
    spec = FolderSpec(path=tmp_path / "run", recipe="r", config={}, seed=0, behavior="raise", free_fields=())
    folder = open_folder(spec, FolderChoice.CREATE)
    telemetry = Telemetry([Events(events.append), TerminalSink(make_console()), folder.run_json])
    how: dict[str, Any] = {"base_models": [], "state_dir": tmp_path, "patience_seconds": 1, "interrupt": Interrupt()}
    with pytest.raises(ServiceError, match="enough"):
        async with open_connection(None, telemetry=telemetry, **how) as opened:
            await opened.connect()
    folder.close()
    assert ("run.warning", {"text": "the engine was lost: killed"}) in [(event.name, event.text) for event in events]
    assert read_history(tmp_path / "run").warnings == ["the engine was lost: killed"]  # what the page shows
    assert "warning: the engine was lost: killed" in capsys.readouterr().out
