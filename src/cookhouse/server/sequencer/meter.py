"""Counting what sessions use: workers tell it, and whoever writes it down takes what has been counted."""

import threading
from collections.abc import Mapping, Sequence

from cookhouse.engine.contract import Account, Amount
from cookhouse.server.sequencer.recent import RecentUse
from cookhouse.server.store.usage import Usage


class Meter:
    """What was used since it was last taken, by account."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[Account, Usage] = {}
        self.recent = RecentUse()

    def count(self, amounts: Sequence[Amount]) -> None:
        """Add what a worker says was used. From one thread."""
        self.recent.count(amounts)
        with self._lock:
            for account, kind, amount in amounts:
                used = Usage(**{kind: amount if kind == "engine_seconds" else int(amount)})  # type: ignore[arg-type]
                self._counted[account] = self._counted.get(account, Usage()) + used

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
