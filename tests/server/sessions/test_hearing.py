"""FailureDetector is a client's only while the server was awake, by a clock that is played."""

from collections.abc import Callable

import pytest

from cookhouse.server.sessions.sessions import Hearing, Sessions


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
        sessions.hearing.look(1.0)
        for gap in gaps:
            clock.now += gap
            sessions.hearing.look(1.0)
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
    heard = Hearing()
    with heard.receiving("owner") as on_part:
        clock.now += 200
        assert heard.silent_seconds("any", "owner", heard_at=0.0) == 200
        assert heard.silent_seconds("any", "another", heard_at=0.0) == 1200
        on_part()
        clock.now += 10
        assert heard.silent_seconds("any", "owner", heard_at=0.0) == 10
    assert heard.silent_seconds("any", "owner", heard_at=0.0) == 1210


def test_polls_are_counted(clock: Clock) -> None:
    """Would catch the end of one of two polls that is taken for that of both."""
    heard = Hearing()
    with heard.polling("one"):
        with heard.polling("one"):
            pass
        assert heard.silent_seconds("one", "owner", heard_at=0.0) == 0
    assert heard.silent_seconds("one", "owner", heard_at=0.0) == clock.now
