"""Catches two servers that hold one session, and a session that nobody holds."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing

import pytest
import sqlalchemy as sa
from tests.server.conftest import Cluster
from tests.server.store.test_schema import connected
from tests.waiting import wait_until

from cookhouse.errors import InputError
from cookhouse.server.leases import keeper as keeping
from cookhouse.server.leases.keeper import Keeper
from cookhouse.server.leases.members import SILENT_SECONDS, Members
from cookhouse.server.leases.profile import Profile
from cookhouse.server.refusals import LeaseLostError, StorageBusyError
from cookhouse.server.store import postgresql as module
from cookhouse.server.store.rows import SessionRow
from cookhouse.server.store.store import Store

NO_PROFILE = Profile()


class Group:
    """Members that each have a store of their own over one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stack = ExitStack()
        self.stores: list[Store] = []

    def made(self) -> Members:
        """One that has not joined."""
        self.stores.append(self._stack.enter_context(closing(Store(self.url, is_shared=True))))
        return Members(self.stores[-1], f"http://here:{len(self.stores)}")

    def new(self, profile: Profile = NO_PROFILE) -> Members:
        members = self.made()
        members.join(profile)
        return members

    def close(self) -> None:
        self._stack.close()

    def silence(self, members: Members, seconds: float = SILENT_SECONDS + 1) -> None:
        """Have it unheard of for so long."""
        with connected(self.url) as connection:
            connection.execute(
                sa.text("UPDATE servers SET heard_at = heard_at - :seconds WHERE server_id = :of"),
                {"seconds": seconds, "of": members.server_id},
            )


@pytest.fixture
def group(postgresql: Cluster) -> Iterator[Group]:
    with closing(Group(postgresql.new())) as group:
        yield group


def begin(members: Members, count: int) -> Sequence[str]:
    rows = [
        SessionRow(session_id=f"s{index}", owner="me", created_at=1.0, server_id=members.server_id)
        for index in range(count)
    ]
    return [members.add_session(row) for row in rows]


def test_the_others_share_what_a_dead_server_held(group: Group) -> None:
    """Would catch sessions that two take, or none."""
    dead, one, two = group.new(), group.new(), group.new()
    begun = begin(dead, 40)
    assert one.claim(one.living()) == []
    group.silence(dead)
    two.drop_silent()
    claimed = [one.claim(one.living()), two.claim(two.living())]
    assert sorted(name for names in claimed for name in names) == sorted(begun)
    assert all(len(names) > 5 for names in claimed)
    assert {one.holder(name).server_id for name in begun} == {one.server_id, two.server_id}  # type: ignore[union-attr]


def test_a_server_that_was_dropped_writes_nothing(group: Group) -> None:
    """Would catch a step of a server that woke up, beside the ones of who took its place."""
    dead, other = group.new(), group.new()
    lost: list[bool] = []
    dead.on_lost = lambda: lost.append(True)
    group.silence(dead)
    other.drop_silent()
    assert not dead.beat()
    with pytest.raises(LeaseLostError, match="another has taken them over"):
        begin(dead, 1)
    assert lost == [True]
    assert other.live_sessions() == set()


def test_a_transaction_under_way_ends_before_its_server_is_dropped(group: Group) -> None:
    """Would catch a commit after its session was taken over; and a server that was stopped inside a transaction, for
    whose end the others would wait for ever.
    """
    paused, other = group.new(), group.new()

    def is_dropped() -> bool:
        other.drop_silent()
        return len(other.living()) == 1

    def write() -> None:
        with group.stores[0].database.writing() as session:
            group.silence(paused)
            other.drop_silent()
            assert len(other.living()) == 2
            wait_until(is_dropped)
            session.execute(sa.text("SELECT 1"))

    with pytest.raises(StorageBusyError, match="cannot be reached"):
        write()


def test_who_was_cut_off_itself_drops_nobody_at_once(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a database that was away for ten seconds, whereupon the first server back takes all the others'
    sessions.
    """
    monkeypatch.setattr(keeping, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(keeping, "_STEADY_SECONDS", 0.5)
    mine, other = group.new(), group.new()
    begun = begin(other, 2)
    group.silence(other)
    claimed: list[str] = []
    changed, lost = threading.Event(), threading.Event()
    keeper = Keeper(mine, on_claimed=claimed.extend, on_change=changed.set, on_lost=lost.set)
    keeper._steady_since = time.monotonic()
    keeper.begin_claiming()
    keeper.start()
    wait_until(changed.is_set)
    assert claimed == []
    other.beat()
    group.silence(other)
    wait_until(lambda: sorted(claimed) == sorted(begun))
    group.silence(mine)
    last = group.new()
    last.drop_silent()
    assert mine.beat()  # it has beaten again meanwhile
    mine.leave()
    wait_until(lost.is_set)
    keeper.stop()


def test_a_failed_write_stops_no_beat(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server that is taken over since a row of a list could not be written."""
    monkeypatch.setattr(keeping, "BEAT_SECONDS", 0.02)
    mine, other = group.new(), group.new()
    is_written = threading.Event()

    def flush() -> None:
        is_written.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr(mine, "flush", flush)
    changed = threading.Event()
    keeper = Keeper(mine, on_claimed=lambda _: None, on_change=changed.set, on_lost=lambda: None)
    keeper.start()
    wait_until(changed.is_set)
    keeper.write_soon()
    wait_until(is_written.is_set)
    changed.clear()
    other.leave()
    wait_until(changed.is_set)
    keeper.stop()


def test_a_claim_counts_until_it_is_taken_note_of(group: Group) -> None:
    """Would catch a busy event loop that takes note of an old claim, and says of a session just claimed that it has
    ended.
    """
    mine = group.new()
    keeper = Keeper(mine, on_claimed=lambda _: None, on_change=lambda: None, on_lost=lambda: None)
    for _ in range(2):
        keeper._claim(mine.living())
    keeper.num_told += 1
    assert keeper.is_claiming
    keeper.num_told += 1
    assert not keeper.is_claiming


def test_it_is_shared_by_those_who_say_so_alone(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server of one's own beside servers that share, which puts their checkpoints aside."""
    monkeypatch.setattr(module, "_CLAIM_SECONDS", 0.05)
    group.new()
    with pytest.raises(InputError, match="in use by another server; stop that, or choose"):
        Store(group.url)


def test_servers_that_share_keep_out_of_another_s_database(
    postgresql: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLAIM_SECONDS", 0.05)
    url = postgresql.new()
    with closing(Store(url)), pytest.raises(InputError, match="start both with --shared-folder"):
        Store(url, is_shared=True)


def test_two_that_start_at_once_make_the_tables_once(postgresql: Cluster) -> None:
    """Would catch a first start of two servers, one of which fails since its tables are there."""
    url = postgresql.new(is_empty=True)
    stores: list[Store] = []
    threads = [threading.Thread(target=lambda: stores.append(Store(url, is_shared=True))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(stores) == 2
    for store in stores:
        store.close()


def test_all_sign_with_one_secret(group: Group) -> None:
    one, two = group.new(), group.new()
    assert one.secret("links", b"first") == two.secret("links", b"second") == b"first"
