"""Counting what sessions use: workers tell it, and whoever writes it down takes what has been counted.

A request may run more than once, since its worker was lost, or left, or the server was: it counts once. What it used is
held until it cannot run again, and not written down before: another server that runs it again counts it then.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence

from cookhouse.engine.contract import Account, Amount
from cookhouse.server.pool.recent import RecentUse
from cookhouse.server.storage.store.usage import Usage

Counts = dict[Account, Usage]


class Meter:
    """What was used since it was last taken, by account."""

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
        """What requests used that may run again."""
        held: Counts = {}
        with self._lock:
            for amounts in self._held.values():
                _add(held, amounts)
        return held

    def take(self) -> Mapping[Account, Usage]:
        """What was counted since the last time."""
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
