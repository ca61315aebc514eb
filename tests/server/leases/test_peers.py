"""Catches servers that cannot reach one another, and do not say so."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.kills.server import free_port
from tests.server.leases.conftest import Shared, leases_of
from tests.waiting import wait_until

from cookhouse.server.leases import forwarding as module
from cookhouse.server.leases.forwarding import Peers, UnreachableError
from cookhouse.server.leases.members import Member


def member(server_id: str) -> Member:
    return Member(server_id=server_id, url=f"http://{server_id}:8000", is_leaving=False, heard_at=0.0)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([UnreachableError("ConnectError refused", is_unsent=True)] * 3, "ConnectError refused"),
        (["b", "b", "b"], "another server answers there"),
    ],
)
def test_one_that_is_not_reached_is_told_once(
    answers: Sequence[str | UnreachableError],
    words: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Would catch a log of one line a second, and none at all."""
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(module, "_SURE_SECONDS", 0.0)
    left = [*answers, "a"]

    async def ask(_: str) -> str:
        answer = left.pop(0)
        if isinstance(answer, UnreachableError):
            raise answer
        return answer

    async def look() -> None:
        peers = Peers("me", ask)
        peers.look([member("me"), member("a")])
        assert not peers.answers(member("a"))
        while left:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert peers.answers(member("a"))
        peers.look([member("me")])
        assert not peers.answers(member("a"))
        peers.close()

    asyncio.run(look())
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith(f"a server joined that says it is reached at http://a:8000, and is not: {words}")
    assert said[1] == "the server at http://a:8000 is reached now"


def test_a_wrong_address_is_told_by_the_others(
    shared: Shared, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a --server-url with a typing error, or of another server, which shows only when one stops."""
    monkeypatch.setattr(module, "_SURE_SECONDS", 0.0)
    nowhere = f"http://127.0.0.1:{free_port()}"
    with shared.server() as first, shared.server(url=nowhere), shared.server(url=first.host.url):
        for url, why in ((nowhere, "ConnectError"), (first.host.url, "another server answers there")):
            wait_until(lambda url=url, why=why: f"at {url}, and is not: {why}" in caplog.text)  # type: ignore[misc]
        assert leases_of(first).others() == []


def test_only_servers_that_share_say_who_they_are(shared: Shared) -> None:
    with shared.server() as server:
        assert server.http.get(f"{server.host.url}/healthz").json() == {
            "status": "ok",
            "server_id": leases_of(server).server_id,
        }


def test_one_that_has_just_died_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a warning at each start after a crash, of the server whose row is still there."""

    async def ask(_: str) -> str:
        raise UnreachableError("ConnectError refused", is_unsent=True)

    async def look() -> None:
        peers = Peers("me", ask)
        peers.look([member("a")])
        await asyncio.sleep(0.01)
        peers.look([])
        peers.close()

    asyncio.run(look())
    assert caplog.records == []
