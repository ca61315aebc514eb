"""FailureDetector is a client's only while the server was awake, by a clock that is played."""

from collections.abc import Callable

import pytest

from cookhouse.server.access.bodies import HeldBytes, Lease
from cookhouse.server.sessions.sessions import Sessions


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("cookhouse.server.sessions.sessions.time", clock)
    return clock


@pytest.fixture
def silent_seconds(clock: Clock) -> Callable[..., float]:
    """Of a session begun at once, after looks that come so many seconds apart."""

    def play(*gaps: float) -> float:
        sessions = Sessions()
        session, _ = sessions.begin("owner", None)
        sessions.look(1.0)
        for gap in gaps:
            clock.now += gap
            sessions.look(1.0)
        return sessions.silent_seconds(session)

    return play


@pytest.mark.parametrize(
    ("gaps", "seconds"),
    [
        ([1.0] * 400, 400.0),  # awake all the while: the client is silent
        ([5.0] * 80, 400.0),  # busy, but awake
        ([600.0], 0.0),  # stopped, starved or suspended for twice the limit
        ([1.0, 600.0, 1.0, 1.0], 2.0),
        ([30.0] * 20, 0.0),  # starved: it gets a moment now and then
    ],
)
def test_a_look_that_comes_late_starts_the_clocks_anew(
    silent_seconds: Callable[..., float], gaps: list[float], seconds: float
) -> None:
    """Would catch a server that was stopped for minutes, and counts them as its clients' silence."""
    assert silent_seconds(*gaps) == seconds


def test_a_body_that_does_not_move_counts_no_longer(clock: Clock) -> None:
    """Would catch a session that lives for ever by half a body whose sender lost its power."""
    sessions, began_at = Sessions(), clock.now
    (mine, _), (other, _) = sessions.begin("owner", None), sessions.begin("another", None)
    lease = Lease(HeldBytes(max_bytes=1, max_owner_bytes=1), "owner", last_part_at=began_at + 200)
    clock.now += 400
    with sessions.receiving(lease):
        assert (sessions.silent_seconds(mine), sessions.silent_seconds(other)) == (200, 400)
        lease.last_part_at = clock.now
        clock.now += 10
        assert sessions.silent_seconds(mine) == 10
    assert sessions.silent_seconds(mine) == 410


def test_polls_are_counted(clock: Clock) -> None:
    """Would catch the end of one of two polls that is taken for that of both."""
    sessions = Sessions()
    session, _ = sessions.begin("owner", None)
    with sessions.polling(session.session_id):
        with sessions.polling(session.session_id):
            clock.now += 5
        clock.now += 5
        assert sessions.silent_seconds(session) == 0
    clock.now += 5
    assert sessions.silent_seconds(session) == 5
