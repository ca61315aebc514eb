"""Catches servers that live and are dropped, and dead ones that are not, on a clock that the tests set."""

import threading
from collections.abc import Callable, Mapping, Sequence

import pytest
from tests.server.leases.keepers import keeper_of
from tests.waiting import wait_until

from cookhouse.server.leases import heartbeats
from cookhouse.server.leases.heartbeats import FailureDetector, Keeper
from cookhouse.server.leases.members import Member
from cookhouse.server.storage.store.failures import unreachable

MINE, OTHER = "mine", "other"


def member(server_id: str, heard_at: float) -> Member:
    return Member(server_id=server_id, url="http://here", is_leaving=False, heard_at=heard_at)


class Scripted:
    """Heartbeats of a database on a clock of its own, in which another server has beaten at some times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(heartbeats, "steady_seconds", lambda: self.now)
        self.other_heard_at = 0.0
        self.dropped_at: list[float] = []
        self.keeper: Keeper = keeper_of(self)
        self.on_beat: Callable[[], None] = lambda: None

    def beat(self) -> Sequence[Member]:
        self.on_beat()
        return self.living()

    def living(self) -> Sequence[Member]:
        return [member(MINE, self.now), *([] if self.dropped_at else [member(OTHER, self.other_heard_at)])]

    def drop(self, silent: Mapping[str, float]) -> None:
        assert silent == {OTHER: self.other_heard_at}
        self.dropped_at.append(self.now)

    def claim(self, _living: Sequence[Member]) -> Sequence[str]:
        return []

    def run_until(self, end: float, *, other_beats: bool) -> None:
        """A beat each second."""
        while self.now < end:
            self.now += 1.0
            if other_beats:
                self.other_heard_at = self.now
            self.keeper._beat(self.now)


def test_one_long_beat_has_nobody_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a network that is away for some seconds within one statement, whereupon the first server that hears
    of the database again takes all sessions of the others, who wait for their network a moment longer.
    """
    scripted = Scripted(monkeypatch)
    scripted.run_until(20, other_beats=True)

    def block() -> None:
        scripted.now += 8.0
        scripted.on_beat = lambda: None

    scripted.on_beat = block
    scripted.run_until(32, other_beats=False)
    scripted.run_until(50, other_beats=True)
    assert scripted.dropped_at == []
    scripted.run_until(60, other_beats=False)
    assert scripted.dropped_at == [56.0], "it is dropped in the end"


def test_beats_that_fail_have_nobody_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch the same where each statement fails meanwhile."""
    scripted = Scripted(monkeypatch)
    scripted.run_until(20, other_beats=True)

    def fail() -> None:
        raise unreachable("it is away")

    for _ in range(8):
        scripted.now += 1.0
        with monkeypatch.context() as patched:
            patched.setattr(scripted, "on_beat", fail)
            with pytest.raises(Exception, match="cannot be reached"):
                scripted.keeper._beat(scripted.now)
    scripted.run_until(32, other_beats=False)
    scripted.run_until(40, other_beats=True)
    assert scripted.dropped_at == []


def test_a_beat_that_took_long_says_nothing_of_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server that answers from its memory although others have taken its sessions over meanwhile."""
    scripted = Scripted(monkeypatch)

    def block() -> None:
        scripted.now += 8.0

    scripted.on_beat = block
    scripted.run_until(1, other_beats=True)
    assert not scripted.keeper.is_current


@pytest.mark.parametrize("step", [3600.0, -3600.0, 6.0])
def test_a_database_s_clock_that_is_set_has_nobody_dropped_or_kept(step: float) -> None:
    """Would catch a clock of the database that is set, or another database's that takes its place: who beats first
    drops all others, or a dead server is waited for by that clock.
    """
    silence = FailureDetector()
    at, clock, dead = 0.0, 1e9, 1e9
    while at < 10.0:
        at, clock = at + 1.0, clock + 1.0
        if at == 5.0:
            clock += step
            dead = clock  # it says so once more
        silence.note([member(MINE, clock), member(OTHER, clock), member("dead", dead)], at)
        assert silence.silent() == {}
    silence.note([member(MINE, clock + 1.0), member(OTHER, clock + 1.0), member("dead", dead)], at + 1.0)
    assert silence.silent() == {"dead": dead}


def test_a_server_whose_event_loop_is_stuck_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server that says it is alive for ever, and answers nobody."""
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(heartbeats, "_STUCK_BEATS", 5)
    scripted = Scripted(monkeypatch)
    lost, asked = threading.Event(), list[bool]()

    def ask() -> None:
        asked.append(True)
        if len(asked) < 20:
            keeper.answer()

    keeper = keeper_of(scripted, on_lost=lost.set, ask=ask)
    keeper.start()
    wait_until(lost.is_set)
    assert len(asked) == 24, "it goes on as long as the loop answers"
    keeper.stop()
