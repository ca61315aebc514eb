"""Leases of sessions: those that this server answers for, and the holders of the others. Lives on the event loop.

join ──► begin_claiming ──► claimed ──► coming: requests wait ── restored ──► in `Sessions`: answered here
anyone else's ──► `find`: whose, as of a moment ago
"""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.server.leases.forwarding import Ask, Peers
from cookhouse.server.leases.heartbeats import BEAT_SECONDS, Heartbeats, Keeper
from cookhouse.server.leases.members import Holder, Member, Members, Profile
from cookhouse.server.leases.takeover import TakeOver, Takeover
from cookhouse.server.refusals import LeaseLostError, StorageError
from cookhouse.server.sessions.sessions import Sessions
from cookhouse.server.storage.store.database import Database
from cookhouse.server.storage.store.identity import ID_FILE, id_in, service_id_in, write_id
from cookhouse.server.storage.store.private import private_folder
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import ServiceRecord

_log = logging.getLogger(__name__)
_KNOWN_SECONDS = 1.0
"""How long it is remembered who holds a session."""
_LOOK_SECONDS = 0.2
_MAX_KNOWN = 10_000
_QUIET_SECONDS = 2 * BEAT_SECONDS
"""A server unheard of for so long may have ended."""


class Leases:
    """Made in any thread, used on the event loop between `join` and `leave`."""

    def __init__(self, store: Store, *, url: str, folder: Path, on_lost: Callable[[], None]) -> None:
        """`url`: where other servers reach this one. `folder`: of checkpoints and journal, which all of them see.
        `on_lost` is called, in any thread, when another server has taken this one for dead.

        Raises:
            InputError: the folder is not that of the other servers, or cannot be used.
        """
        check_shared_folder(folder, store.database)
        self.members = Members(store, url)
        self.folder = folder
        self.secret = self.members.secret("links", secrets.token_bytes(32))
        self.has_left = False
        self._database = store.database
        self._on_lost = on_lost
        self._sessions: Sessions
        self._peers: Peers
        self._loop: asyncio.AbstractEventLoop
        self._keeper: Keeper | None = None
        self._listing = Listing(self.members.flush)
        self._coming: Takeover
        self._changed: asyncio.Event
        self._known: dict[str, tuple[float, Holder]] = {}

    @property
    def server_id(self) -> str:
        return self.members.server_id

    @property
    def is_current(self) -> bool:
        """True if what is in this server's memory counts: no other can have taken its sessions over."""
        return self._keeper is not None and self._keeper.is_current and not self.has_left

    async def check_profile(self, profile: Profile) -> None:
        """`join` would refuse what this refuses."""
        await asyncio.to_thread(self.members.check, profile)

    async def join(
        self, sessions: Sessions, take_over: TakeOver, profile: Profile, ask: Ask, *, on_tried: Callable[[], None]
    ) -> None:
        """Be one of the servers. `take_over` is for what nobody holds, once that may be claimed; `on_tried` is called
        when it has been tried for all of that.

        Raises:
            InputError: the profile does not go with that of the others.
            StorageError: the database cannot be written.
        """
        self._sessions = sessions
        self._coming = Takeover(take_over, on_back=self.forget, on_tried=on_tried, is_over=lambda: self.has_left)
        self._peers = Peers(self.server_id, ask)
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        self.members.on_lost = self._lose
        await asyncio.to_thread(self.members.join, profile)
        keeper = self._keeper = Keeper(
            Heartbeats(self.members),
            on_claimed=lambda claimed: self._call(self._claimed, claimed),
            on_change=lambda: self._call(self._note_change),
            on_lost=self._lose,
            ask=lambda: self._call(keeper.answer),
        )
        self._database.on_record = self._listing.write_soon
        self._listing.start()
        keeper.start()

    async def settle(self) -> None:
        """Wait until it is known whether other servers live: one that died is dropped after some seconds, and until
        then looks like any other. Raises StorageError.
        """
        first = await asyncio.to_thread(self.members.heard)
        left = first
        # One that has beaten since lives, and so does one that has come.
        while left and left.items() <= first.items():
            await asyncio.sleep(_LOOK_SECONDS)
            left = await asyncio.to_thread(self.members.heard)

    def begin_claiming(self) -> None:
        """Take over what nobody holds, now and later. Before that this server writes nothing of any session."""
        assert self._keeper is not None
        self._keeper.begin_claiming()

    @property
    def num_living(self) -> int:
        """Servers that are alive, as of the last beat."""
        return 0 if self._keeper is None else len(self._keeper.living)

    @property
    def unserved(self) -> Mapping[str, Collection[str]]:
        """Base models of sessions that no server can take over, by session."""
        return self.members.serving.unserved

    def others(self) -> Sequence[Member]:
        """Servers that take new work and answer, but for this one."""
        return [member for member in self.answering() if not member.is_leaving]

    def answering(self) -> Sequence[Member]:
        """Servers that answer, but for this one, and also those that take no new work."""
        living = () if self._keeper is None else self._keeper.living
        return [member for member in living if member.silent_seconds <= _QUIET_SECONDS and self._peers.answers(member)]

    def lives(self, holder: Holder) -> bool:
        """True if a server has not been dropped, as of the last beat."""
        living = () if self._keeper is None else self._keeper.living
        return any(member.server_id == holder.server_id for member in living)

    def holds(self, session_id: str) -> bool:
        """True if this server answers for a session."""
        return self.is_current and session_id not in self._coming and self._sessions.has(session_id)

    async def check(self) -> None:
        """Ask the database whether this server may still say what has ended: after a pause its memory is old.

        Raises:
            StorageError: it may not, or the database cannot be asked now.
        """
        if not await asyncio.to_thread(self.members.is_one):
            self._lose()
            raise LeaseLostError("this server holds no sessions any more; send it again")

    def is_coming(self, session_id: str) -> bool:
        """True if a session is being taken over by this server, or may be."""
        return session_id in self._coming or (self._keeper is not None and self._keeper.is_claiming)

    async def find(self, session_id: str) -> Holder | None:
        """Holder of a session, as of a moment ago; None: it has ended, or never was. Raises StorageError."""
        known = self._known.get(session_id)
        if known is not None and time.monotonic() - known[0] < _KNOWN_SECONDS:
            return known[1]
        holder = await asyncio.to_thread(self.members.holder, session_id)
        if holder is not None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[session_id] = time.monotonic(), holder
        return holder

    def forget(self, session_id: str) -> None:
        """Look anew who holds a session."""
        self._known.pop(session_id, None)

    async def change(self) -> None:
        """Wait until sessions may have gone to another server."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), BEAT_SECONDS)

    async def begin_leaving(self) -> None:
        """Claim nothing any more, and have the others take new sessions."""
        if self._keeper is not None:
            self._keeper.is_leaving = True
            try:
                await asyncio.to_thread(self.members.begin_leaving)
            except StorageError as error:
                _log.warning("the other servers were not told that this one stops: %s", error)

    def leave(self) -> None:
        """Hand all sessions over. Blocking; again does nothing."""
        if self.has_left or self._keeper is None:
            return
        self.has_left = True
        self._keeper.stop()
        self._listing.stop()
        try:
            self.members.leave()
        except StorageError as error:
            _log.warning("sessions were not handed over, and are taken over in a few seconds: %s", error)

    def stop_asking(self) -> None:
        """Ask the other servers nothing more."""
        if self._keeper is not None:
            self._peers.close()

    def _lose(self) -> None:
        """In any thread."""
        if not self.has_left:
            self.has_left = True
            self._on_lost()

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """From the keeper's thread."""
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def look_for(self, session_id: str) -> None:
        """Bring a session of this server's back, if there is one: whether it was written down is not known."""
        self._come([session_id])

    def _claimed(self, session_ids: Sequence[str]) -> None:
        self._come(session_ids)
        if self._keeper is not None:
            self._keeper.num_told += 1

    def _come(self, session_ids: Sequence[str]) -> None:
        self._coming.come(session_ids)
        self._forget_known()

    def _note_change(self) -> None:
        self._forget_known()
        if self._keeper is not None and not self.has_left:
            self._peers.look(self._keeper.living)

    def _forget_known(self) -> None:
        self._known.clear()
        self._changed.set()
        self._changed = asyncio.Event()


class Listing:
    """Writes rows soon that are only listed: the other servers list them, too.

    A thread of its own: what is written may wait for a lock, or for the network.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._is_stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write_soon(self) -> None:
        """From any thread."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no further write. What is being written goes on."""
        self._is_stopped = True
        self._wake.set()

    def _run(self) -> None:
        while self._wake.wait() and not self._is_stopped:
            self._wake.clear()
            try:
                self._flush()
            except Exception:  # they wait, and go with the next
                _log.exception("rows could not be written")


_MARKED = "shared folder"
"""The row that says that the file has been written; its value is what the first server called the folder."""


def check_shared_folder(folder: Path, database: Database) -> None:
    """See that a folder is that of the service. Its first server makes it, and no other does.

    A file there has the service's id, and the database knows of it. One that is not mounted is empty, or not there: a
    server over it would find nothing of the sessions that it takes over.

    Raises:
        InputError: it is another, or cannot be used.
        StorageError: the database cannot be written.
    """
    with database.writing() as session:
        service_id = service_id_in(session, database)
        marked = session.get(ServiceRecord, _MARKED)
        try:
            if marked is None:
                private_folder(folder)
            found = id_in(folder)
            if marked is None and found is None:
                write_id(folder, service_id)
                found = service_id
        except OSError as error:
            raise InputError(f"the shared folder {folder} cannot be used: {error.strerror}; name another") from error
        if found is None:
            assert marked is not None
            raise InputError(
                f"the shared folder {folder} is not that of the other servers, since it has no file {ID_FILE}: mount "
                f"here what the first server called {marked.value}, and start this one again; if it is that all the "
                f"same, write {service_id} into {folder / ID_FILE}"
            )
        if found != service_id:
            raise InputError(
                f"the shared folder {folder} is that of another service: {folder / ID_FILE} says "
                f"{found or 'nothing'!r}, and the database {service_id}; mount the folder of this database's "
                "servers, or name one of their own. If no other database goes with it, delete that file, or write into "
                "it what the database says"
            )
        if marked is None:
            session.add(ServiceRecord(name=_MARKED, value=str(folder.absolute())))
