"""Which service is chosen from the environment."""

import asyncio

import pytest

from cookhouse.adapters import ServiceAddress
from cookhouse.errors import InputError, ServiceError
from cookhouse.service.connection import check_reachable, configured_service


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
