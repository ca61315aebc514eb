"""Heartbeats in a thread of their own, so that a busy event loop costs a server nothing, and reports of what they find.

beat ── gone? ──► on_lost: another server has taken over
  ├──► the others ── silent? ──► dropped ──► once it may: their sessions claimed ──► on_claimed
  └──► ask: an event loop that answers no more has the server end, too
"""

import faulthandler
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from cookhouse.server.leases.beats import Beats
from cookhouse.server.leases.members import SILENT_SECONDS, Member
from cookhouse.server.leases.silence import Silence
from cookhouse.server.refusals import LeaseLostError, StorageError
from cookhouse.server.storage.store.clock import steady_seconds

BEAT_SECONDS = 1.0
_CLAIM_BEATS = 10
"""Sessions that nobody holds are looked for when a server comes or goes, and each so many beats."""
_STUCK_BEATS = 30
"""A server whose event loop has not run since so many beats answers nobody: another is to have its sessions."""
_log = logging.getLogger(__name__)


class Keeper:
    def __init__(
        self,
        beats: Beats,
        *,
        on_claimed: Callable[[Sequence[str]], None],
        on_change: Callable[[], None],
        on_lost: Callable[[], None],
        ask: Callable[[], None],
    ) -> None:
        """The functions are called in the keeper's thread: with ids of sessions that this server has claimed, when
        servers come or go, when this one has been dropped or is to end, and to have the event loop call `answer`.
        """
        self._beats = beats
        self._on_claimed = on_claimed
        self._on_change = on_change
        self._on_lost = on_lost
        self._ask = ask
        self._silence = Silence()
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._heard_at = steady_seconds()
        """When this server was heard of last, at least."""
        self._known: frozenset[tuple[str, bool]] = frozenset()
        self._num_beats = 0
        self._num_unanswered = 0
        """Beats since the event loop ran: of time that passes while the whole process is stopped it knows nothing."""
        self._may_claim = False
        self._has_claimed = False
        self._is_failing = False
        self.living: Sequence[Member] = ()
        """As of the last beat."""
        self._num_claims = 0
        self.num_told = 0
        """Claims that its listener has taken note of; counted by it."""
        self.is_leaving = False

    @property
    def is_current(self) -> bool:
        """Whether no other server can have taken this one for dead."""
        return steady_seconds() - self._heard_at < SILENT_SECONDS

    @property
    def is_claiming(self) -> bool:
        """Whether sessions are claimed, or being claimed, that nobody has taken note of."""
        return self.num_told < self._num_claims

    def start(self) -> None:
        self._thread.start()

    def begin_claiming(self) -> None:
        """Claim sessions, from now on. From any thread."""
        self._may_claim = True
        self._wake.set()

    def answer(self) -> None:
        """The event loop runs."""
        self._num_unanswered = 0

    def stop(self) -> None:
        """Blocking, as long as a beat takes."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began_at = steady_seconds()
            self._wake.clear()
            try:
                self._check_loop()
                self._beat(began_at)
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
            if not self._stopped.is_set():
                self._wake.wait(max(0.0, began_at + BEAT_SECONDS - steady_seconds()))

    def _check_loop(self) -> None:
        """Raises LeaseLostError: the event loop does not run, and this server is to be heard of no more."""
        if self._num_unanswered >= _STUCK_BEATS:
            _log.error("the event loop has not run for %.0f s, and this server ends", _STUCK_BEATS * BEAT_SECONDS)
            faulthandler.dump_traceback()
            raise LeaseLostError("its event loop does not run")
        self._num_unanswered += 1
        self._ask()

    def _beat(self, began_at: float) -> None:
        living = self._beats.beat()
        if living is None:
            raise LeaseLostError("this server has been taken for dead")
        self._heard_at = began_at
        self._silence.note(living, steady_seconds())
        if silent := self._silence.silent():
            self._beats.drop(silent)
            living = self._look()
        if self._may_claim and not self._has_claimed and not self.is_leaving:
            self._beats.begin_claiming()
            living = self._look()
        self.living = [replace(one, silent_seconds=self._silence.seconds(one.server_id)) for one in living]
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

    def _look(self) -> Sequence[Member]:
        living = self._beats.living()
        self._silence.note(living, steady_seconds())
        return living

    def _claim(self, living: Sequence[Member]) -> None:
        self._num_claims += 1
        claimed: Collection[str] = ()
        try:
            claimed = self._beats.claim(living)
        finally:
            self._on_claimed(list(claimed))
