"""Catches two servers that hold one session, and a session that nobody holds."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from tests.server.conftest import Cluster
from tests.server.leases.keepers import keeper_of
from tests.server.storage.store.test_schema import connected
from tests.waiting import wait_until

from cookhouse.errors import InputError
from cookhouse.server.leases import heartbeats
from cookhouse.server.leases.heartbeats import Heartbeats
from cookhouse.server.leases.leases import Listing
from cookhouse.server.leases.members import Members, Profile
from cookhouse.server.refusals import LeaseLostError, StorageBusyError
from cookhouse.server.storage.store import postgresql as module
from cookhouse.server.storage.store.copies import Copies
from cookhouse.server.storage.store.failures import unreachable
from cookhouse.server.storage.store.rows import SessionRow
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import ServerRecord

NO_PROFILE = Profile()

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True)
class Server:
    members: Members
    heartbeats: Heartbeats
    store: Store

    @property
    def server_id(self) -> str:
        return self.members.server_id

    def living(self) -> Sequence[str]:
        return [member.server_id for member in self.heartbeats.living()]

    def drop(self, other: "Server") -> None:
        """As one that has said nothing since now."""
        [heard_at] = [one.heard_at for one in self.heartbeats.living() if one.server_id == other.server_id]
        self.heartbeats.drop({other.server_id: heard_at})

    def claim(self) -> Sequence[str]:
        return self.heartbeats.claim(self.heartbeats.living())

    def begin(self, count: int) -> Sequence[str]:
        rows = [
            SessionRow(session_id=f"s{index}", owner="me", created_at=1.0, server_id=self.server_id)
            for index in range(count)
        ]
        return [self.members.add_session(row) for row in rows]


class Group:
    """Servers that have each a store of its own over one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stack = ExitStack()
        self._count = 0

    def made(self) -> Server:
        """One that has not joined."""
        self._count += 1
        store = self._stack.enter_context(closing(Store(self.url, is_shared=True)))
        members = Members(store, f"http://here:{self._count}")
        return Server(members, Heartbeats(members), store)

    def new(self, profile: Profile = NO_PROFILE, *, claims: bool = True) -> Server:
        server = self.made()
        server.members.join(profile)
        if claims:
            server.heartbeats.begin_claiming()
        return server

    def silence(self, server: Server) -> None:
        """Have it heard of long ago, by the database's clock."""
        with connected(self.url) as connection:
            wanted = sa.update(ServerRecord).where(ServerRecord.server_id == server.server_id)
            connection.execute(wanted.values(heard_at=ServerRecord.heard_at - 60.0))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def group(postgresql: Cluster) -> Iterator[Group]:
    with closing(Group(postgresql.new())) as group:
        yield group


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats come fifty times as often."""
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(heartbeats, "SILENT_SECONDS", 1.0)


def test_the_others_share_what_a_dead_server_held(group: Group) -> None:
    """Would catch sessions that two take, or none."""
    dead, one, two = group.new(), group.new(), group.new()
    begun = dead.begin(40)
    assert one.claim() == []
    two.drop(dead)
    claimed = [one.claim(), two.claim()]
    assert sorted(name for names in claimed for name in names) == sorted(begun)
    assert all(len(names) > 5 for names in claimed)
    assert {one.members.holder(name).server_id for name in begun} == {one.server_id, two.server_id}  # type: ignore[union-attr]


def test_a_server_that_does_not_claim_yet_is_left_nothing(group: Group) -> None:
    """Would catch sessions that wait for a server which is still starting, and may never serve."""
    dead, one = group.new(), group.new()
    begun = dead.begin(20)
    starting = group.new(claims=False)
    one.drop(dead)
    assert starting.claim() == []
    assert one.claim() == sorted(begun)
    starting.heartbeats.begin_claiming()
    one.members.leave()
    assert starting.claim() == sorted(begun)


def test_a_claim_whose_commit_was_not_answered_is_told_of(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch sessions that a server holds, and of which it never hears."""
    dead, mine = group.new(), group.new()
    begun = dead.begin(3)
    mine.drop(dead)
    quick = mine.store.database.quick

    @contextmanager
    def cut() -> Iterator[sa.Connection]:
        with quick() as connection:
            yield connection
        raise unreachable("it was cut")

    with monkeypatch.context() as patched:
        patched.setattr(mine.store.database, "quick", cut)
        living = mine.members.counted()
        with pytest.raises(StorageBusyError):
            mine.heartbeats.claim(living)
    assert mine.claim() == sorted(begun)
    assert mine.claim() == []


def test_a_server_that_was_dropped_writes_nothing(group: Group) -> None:
    """Would catch a step of a server that woke up, beside the ones of who took its place."""
    dead, other = group.new(), group.new()
    lost: list[bool] = []
    dead.members.on_lost = lambda: lost.append(True)
    living = dead.heartbeats.living()
    other.drop(dead)
    assert dead.heartbeats.beat() is None
    for write in (lambda: dead.begin(1), lambda: dead.heartbeats.claim(living), lambda: dead.drop(other)):
        with pytest.raises(LeaseLostError, match="another has taken them over"):
            write()
    assert lost == [True] * 3
    assert other.members.live_sessions() == set()
    assert other.living() == [other.server_id]


def test_a_transaction_under_way_ends_before_its_server_is_dropped(group: Group) -> None:
    """Would catch a commit after its session was taken over; and a server that was stopped inside a transaction, for
    whose end the others would wait for ever.
    """
    paused, other = group.new(), group.new()

    def is_dropped() -> bool:
        other.drop(paused)
        return len(other.living()) == 1

    def write() -> None:
        with paused.store.database.writing() as session:
            other.drop(paused)
            assert len(other.living()) == 2
            wait_until(is_dropped)
            session.execute(sa.text("SELECT 1"))

    with pytest.raises(StorageBusyError, match="cannot be reached"):
        write()


def test_who_has_beaten_meanwhile_is_not_dropped(group: Group) -> None:
    """Would catch a server that was found silent, and beat before it was dropped."""
    mine, other = group.new(), group.new()
    [heard_at] = [one.heard_at for one in mine.heartbeats.living() if one.server_id == other.server_id]
    other.heartbeats.beat()
    mine.heartbeats.drop({other.server_id: heard_at})
    assert len(mine.living()) == 2


@pytest.mark.usefixtures("quick")
def test_a_dead_server_s_sessions_are_claimed_by_one_that_has_just_started(group: Group) -> None:
    """Would catch one that is taken for alive for ever, and one that others have taken over and that goes on."""
    dead = group.new()
    begun = dead.begin(2)
    mine, lost, claimed = group.new(claims=False), threading.Event(), list[str]()
    keeper = keeper_of(mine.heartbeats, on_claimed=claimed.extend, on_lost=lost.set)
    keeper.begin_claiming()
    keeper.start()
    wait_until(lambda: sorted(claimed) == sorted(begun))
    mine.members.leave()
    wait_until(lost.is_set)
    keeper.stop()


@pytest.mark.usefixtures("quick")
def test_beats_and_claims_wait_for_no_other_work(group: Group) -> None:
    """Would catch a server that is taken over since a transaction of its own waits for a lock, or for the network."""
    dead, mine = group.new(), group.new(claims=False)
    begun = dead.begin(2)
    claimed: list[str] = []
    keeper = keeper_of(mine.heartbeats, on_claimed=claimed.extend)
    with mine.store.database.writing():
        keeper.begin_claiming()
        keeper.start()
        wait_until(lambda: sorted(claimed) == sorted(begun))
    keeper.stop()


def test_a_failed_write_stops_no_other() -> None:
    """Would catch rows that no other server ever lists, since one could not be written once."""
    tried: list[bool] = []
    is_tried = threading.Event()

    def flush() -> None:
        tried.append(True)
        is_tried.set()
        raise RuntimeError("a bug")

    listing = Listing(flush)
    listing.start()
    for number in (1, 2):
        listing.write_soon()
        assert is_tried.wait(10)
        is_tried.clear()
        assert len(tried) == number
    listing.stop()


def test_a_claim_counts_until_it_is_taken_note_of(group: Group) -> None:
    """Would catch a busy event loop that takes note of an old claim, and says of a session just claimed that it has
    ended.
    """
    mine = group.new()
    keeper = keeper_of(mine.heartbeats)
    for _ in range(2):
        keeper._claim(mine.heartbeats.living())
    keeper.num_told += 1
    assert keeper.is_claiming
    keeper.num_told += 1
    assert not keeper.is_claiming


def test_a_machine_s_clock_deletes_nothing_of_the_others(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a server whose machine is a day ahead: it takes the others' checkpoints for expired, and makes a copy
    again that another has made.
    """
    mine = group.new()
    now = time.time()
    Copies(mine.store, mine.server_id).begin("me", "k")
    monkeypatch.setattr(time, "time", lambda: now + 2 * DAY)
    ahead = group.new()
    ahead.heartbeats.beat()
    ends_at = mine.store.clock.end_of(HOUR)
    uptime = time.monotonic()
    past_the_first_hour = uptime + HOUR + 60.0  # a minute: they asked the database for its time one after the other
    monkeypatch.setattr(time, "monotonic", lambda: past_the_first_hour)
    ahead.store.note_time(ends_at - 1.0)
    assert not ahead.store.clock.is_over(ends_at)
    ahead.store.note_time(ends_at + HOUR)
    assert ahead.store.clock.is_over(ends_at)
    with pytest.raises(StorageBusyError, match="another server makes this copy"):
        Copies(ahead.store, ahead.server_id).begin("me", "k")


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
    one, two = group.new().members, group.new().members
    assert one.secret("links", b"first") == two.secret("links", b"second") == b"first"
