"""Meter of what sessions use: workers report it, and whoever writes it down takes what has been counted.

A request may run more than once, since its worker was lost, or left, or the server was: it counts once. What it used is
held until it cannot run again, and not written down before: another server that runs it again counts it then.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from cookhouse.engine.contract import Account, Amount
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.usage import Usage

Counts = dict[Account, Usage]
WINDOW_SECONDS = 60


class RecentUse:
    """Amounts by owner, in seconds of the last minute. From one thread at a time."""

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._seconds: deque[tuple[int, defaultdict[tuple[str, str], float]]] = deque(maxlen=WINDOW_SECONDS + 1)

    def count(self, amounts: Sequence[Amount]) -> None:
        """Add what was used just now."""
        second = int(time.monotonic())
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, defaultdict(float)))
        counted = self._seconds[-1][1]
        for account, kind, amount, _ in amounts:
            counted[account.owner, kind] += amount

    def rates(self) -> Mapping[str, Mapping[str, float]]:
        """By owner and kind: per second, over the last minute or the time since the start. What took long is counted
        when it was over.
        """
        now = time.monotonic()
        window = min(WINDOW_SECONDS, max(now - self._began_at, 1.0))
        sums: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for second, counted in self._seconds:
            if second > now - WINDOW_SECONDS:
                for (owner, kind), amount in counted.items():
                    sums[owner][kind] += amount
        return {owner: {kind: total / window for kind, total in kinds.items()} for owner, kinds in sums.items()}


class Meter:
    """Usage since it was last taken, by account."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counts = {}
        self._held: dict[str, Sequence[Amount]] = {}
        """By request that may run again."""
        self.recent = RecentUse()

    def count(self, amounts: Iterable[Amount]) -> None:
        """Add what was used."""
        with self._lock:
            _add(self._counted, amounts)

    def hold(self, request_id: str, amounts: Sequence[Amount]) -> None:
        """Count what a request used, unless it has run before."""
        with self._lock:
            self._held.setdefault(request_id, amounts)

    def settle(self, request_ids: Iterable[str]) -> None:
        """Have requests counted for good: they will not run again."""
        with self._lock:
            for request_id in request_ids:
                _add(self._counted, self._held.pop(request_id, ()))

    def let_go(self, request_ids: Iterable[str]) -> None:
        """Forget requests that another server runs again."""
        with self._lock:
            for request_id in request_ids:
                self._held.pop(request_id, None)

    def held(self) -> Mapping[Account, Usage]:
        """Usage of requests that may run again."""
        with self._lock:
            return self._with_held({})

    def unwritten(self) -> Mapping[Account, Usage]:
        """Usage that was counted since it was last taken, and that is held."""
        with self._lock:
            return self._with_held(dict(self._counted))

    def _with_held(self, counts: Counts) -> Counts:
        for amounts in self._held.values():
            _add(counts, amounts)
        return counts

    def take(self) -> Mapping[Account, Usage]:
        """Take the usage that was counted since the last time."""
        with self._lock:
            taken, self._counted = self._counted, {}
        return taken

    def give_back(self, taken: Mapping[Account, Usage]) -> None:
        """Count what could not be written down again."""
        with self._lock:
            for account, usage in taken.items():
                self._counted[account] = self._counted.get(account, Usage()) + usage


def _add(counts: Counts, amounts: Iterable[Amount]) -> None:
    for account, kind, amount, _ in amounts:
        used = Usage(**{kind: amount if kind == "engine_seconds" else int(amount)})  # type: ignore[arg-type]
        counts[account] = counts.get(account, Usage()) + used


class Metering:
    """Blocking calls, from any thread. What is read has all that was counted until then.

    Raises:
        StorageError: it cannot be read or written now; nothing that was counted is lost.
    """

    def __init__(self, meter: Meter, store: Store) -> None:
        self._meter = meter
        self._store = store

    def flush(self) -> None:
        """Write down what has been counted, each count once."""
        taken = self._meter.take()
        try:
            self._store.add_usage({(account.owner, account.session_id): usage for account, usage in taken.items()})
        except BaseException:
            self._meter.give_back(taken)
            raise

    def unwritten(self, owner: str) -> Usage:
        """Usage of a tenant that is counted, and not written down. At once."""
        return sum((one for account, one in self._meter.unwritten().items() if account.owner == owner), Usage())

    def of_session(self, session_id: str, owner: str) -> Usage:
        """Usage of a session, also of one that has ended; nothing where it is another tenant's."""
        self.flush()
        held = self._meter.held().get(Account(owner, session_id), Usage())
        return self._store.session_usage(session_id, owner) + held

    def by_owner(self) -> Mapping[str, Usage]:
        """Usage of each tenant, since there is a store."""
        self.flush()
        used = dict(self._store.usage_by_owner())
        for account, usage in self._meter.held().items():
            used[account.owner] = used.get(account.owner, Usage()) + usage
        return used
