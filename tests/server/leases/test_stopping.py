"""Catches requests that are lost, or refused, while one of several servers stops."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.server.leases.conftest import Shared, knows_others, leases_of
from tests.server.leases.test_routing import in_thread
from tests.server.test_draining import drain
from tests.server.test_routes import Server
from tests.waiting import wait_until

from cookhouse.server.leases.members import Holder, Member, Members


@pytest.fixture
def three(shared: Shared) -> Iterator[Sequence[Server]]:
    """Three servers that know of each other."""
    with ExitStack() as stack:
        servers = [stack.enter_context(shared.server()) for _ in range(3)]
        wait_until(lambda: all(knows_others(server, 2) for server in servers))
        yield servers


def choose(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this one asked by those that stop."""

    def chosen(members: Sequence[Member]) -> Member:
        return next(member for member in members if member.server_id == leases_of(server).server_id)

    monkeypatch.setattr("random.choice", chosen)


def test_what_reaches_a_server_that_has_just_begun_to_stop_waits_where_it_came_from(
    two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a request that is held for the whole drain by who sends no more on, and refused then."""
    first, second = two
    model_id = first.model(first.session())
    assert drain(first).result(20)
    find, asked = Members.holder, threading.Semaphore(0)

    def stale_once(members: Members, session_id: str) -> Holder | None:
        found = find(members, session_id)
        is_first = asked._value == 0
        asked.release()
        return replace(found, is_leaving=False) if is_first and found is not None else found

    monkeypatch.setattr(Members, "holder", stale_once)
    waiting = in_thread(second, "/optim_step", model_id=model_id, seq_id=1, adam_params={})
    wait_until(lambda: asked._value > 1 or waiting.done())
    assert not waiting.done()
    first.host.on_loop(first.host.service.hand_over)
    answer = waiting.result(20)
    assert answer.status_code == 200
    assert second.result(answer.json()["request_id"]).status_code == 200
    assert [name for name, _ in second.engine.calls][-1] == "optim_step"


def test_a_third_server_s_session_is_found_while_one_stops(
    three: Sequence[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a request that ends at the server which was asked, since that one does not hold its session."""
    first, second, third = three
    model_id = third.model(third.session())
    assert drain(first).result(20)
    choose(second, monkeypatch)
    answer = in_thread(first, "/optim_step", model_id=model_id, seq_id=1, adam_params={}).result(20)
    assert answer.status_code == 200
    assert first.result(answer.json()["request_id"]).status_code == 200
    assert [name for name, _ in third.engine.calls][-1] == "optim_step"


def test_a_stopping_server_s_sessions_are_found_whoever_takes_them(
    three: Sequence[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a request that was sent to one of the others, and whose session went to yet another."""
    first, second, third = three
    models = [first.model(first.session()) for _ in range(20)]
    assert drain(first).result(20)
    choose(second, monkeypatch)
    held = [in_thread(first, "/optim_step", model_id=model_id, seq_id=1, adam_params={}) for model_id in models]
    first.host.on_loop(first.host.service.hand_over)
    assert [one.result(20).status_code for one in held] == [200] * 20
    # By chance all go to one of them once in half a million runs.
    assert all(list(server.host.service.sessions) for server in (second, third))


def test_a_silent_server_is_not_asked(two: tuple[Server, Server]) -> None:
    """Would catch a drain that sends to a server which has just died, and has not been dropped yet."""
    mine = leases_of(two[0])
    assert mine._keeper is not None
    mine._keeper.stop()
    living = mine._keeper.living
    mine._keeper.living = [replace(member, silent_seconds=2.5) for member in living]
    assert mine.others() == []
    mine._keeper.living = [replace(member, silent_seconds=1.5) for member in living]
    assert len(mine.others()) == 1
