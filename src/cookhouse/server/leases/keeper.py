"""Beats in a thread of its own, so that a busy event loop costs a server nothing, and tells what it learns.

beat ── gone? ──► on_lost: another server has taken over
  └──► the others ── unheard of? ──► dropped ──► once told to: their sessions claimed ──► on_claimed
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from cookhouse.server.leases.members import SILENT_SECONDS, Member, Members
from cookhouse.server.refusals import LeaseLostError, StorageError

BEAT_SECONDS = 1.0
_CLAIM_BEATS = 10
"""Sessions that nobody holds are looked for when a server comes or goes, and each so many beats."""
_STEADY_SECONDS = SILENT_SECONDS
"""Others are dropped by who has been heard of for so long: after a failure of the database, all are silent at first."""
_log = logging.getLogger(__name__)


class Keeper:
    def __init__(
        self,
        members: Members,
        *,
        on_claimed: Callable[[Sequence[str]], None],
        on_change: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        """The functions are called in the keeper's thread: with ids of sessions that this server has claimed, when
        servers come or go, and when this one has been dropped.
        """
        self._members = members
        self._on_claimed = on_claimed
        self._on_change = on_change
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._is_dirty = False
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._heard_at = time.monotonic()
        """When this server was heard of last, at least."""
        self._steady_since = time.monotonic()
        self._known: frozenset[tuple[str, bool]] = frozenset()
        self._num_beats = 0
        self._may_claim = False
        self._has_claimed = False
        self._is_failing = False
        self.living: Sequence[Member] = ()
        """As of the last beat."""
        self._num_claims = 0
        self.num_told = 0
        """Claims of which who is told has taken note; counted by it."""
        self.is_leaving = False

    @property
    def is_current(self) -> bool:
        """Whether no other server can have taken this one for dead."""
        return time.monotonic() - self._heard_at < SILENT_SECONDS

    @property
    def is_claiming(self) -> bool:
        """Whether sessions are claimed, or being claimed, that nobody has taken note of."""
        return self.num_told < self._num_claims

    def start(self) -> None:
        self._thread.start()

    def begin_claiming(self) -> None:
        """Claim sessions, from the next beat on. From any thread."""
        self._may_claim = True

    def write_soon(self) -> None:
        """Have the rows written that have been recorded: they are listed by the other servers, too. From any thread."""
        self._is_dirty = True
        self._wake.set()

    def stop(self) -> None:
        """Blocking, as long as a beat takes."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._beat()
                if self._is_failing:
                    _log.warning("the database can be reached again")
                self._is_failing = False
            except LeaseLostError:
                if not self._stopped.is_set():
                    self._on_lost()
                return
            except StorageError as error:
                if not self._is_failing:
                    _log.warning("this server cannot say that it is alive, and tries again: %s", error)
                self._is_failing = True
            except Exception:
                _log.exception("a beat failed")
            try:
                self._pause()
            except Exception:  # who does not beat any more is taken for dead
                _log.exception("rows could not be written")

    def _pause(self) -> None:
        """Until the next beat; writes meanwhile."""
        ends_at = time.monotonic() + BEAT_SECONDS
        while not self._stopped.is_set() and (left := ends_at - time.monotonic()) > 0:
            if self._wake.wait(left):
                self._wake.clear()
            if self._is_dirty:
                self._is_dirty = False
                self._members.flush()

    def _beat(self) -> None:
        began_at = time.monotonic()
        if began_at - self._heard_at > SILENT_SECONDS / 2:
            self._steady_since = began_at
        if not self._members.beat():
            raise LeaseLostError("this server has been taken for dead")
        self._heard_at = began_at
        living = self._members.living()
        is_anyone_silent = any(member.silent_seconds > SILENT_SECONDS for member in living)
        if is_anyone_silent and began_at - self._steady_since >= _STEADY_SECONDS:
            self._members.drop_silent()
            living = self._members.living()
        self.living = living
        known = frozenset((member.server_id, member.is_leaving) for member in living)
        has_changed = known != self._known
        is_due = has_changed or not self._has_claimed or self._num_beats % _CLAIM_BEATS == 0
        if is_due and self._may_claim and not self.is_leaving:
            self._claim(living)
            self._has_claimed = True
        self._known = known
        self._num_beats += 1
        if has_changed:
            self._on_change()

    def _claim(self, living: Sequence[Member]) -> None:
        self._num_claims += 1
        claimed: Collection[str] = ()
        try:
            claimed = self._members.claim(living)
        finally:
            self._on_claimed(list(claimed))
