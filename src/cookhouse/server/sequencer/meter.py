"""Counting what sessions use. The engine's thread counts; whoever writes it down takes what has been counted."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cookhouse.server.store.usage import Usage


class Account(NamedTuple):
    """Whom it is put down to."""

    owner: str
    session_id: str


class Meter:
    """What was used since it was last taken, by account."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[Account, Usage] = {}

    def count(self, account: Account, usage: Usage) -> None:
        """Put the tokens of a request down to its session."""
        self.give_back({account: usage})

    def charge(self, served: Sequence[tuple[Account, int]], seconds: float) -> None:
        """Part the time of a turn among those that it served, by weight; equally where all weights are 0."""
        shares: Counter[Account] = Counter()
        whole = sum(weight for _, weight in served)
        for account, weight in served:
            shares[account] += weight if whole else 1
        total = shares.total()
        self.give_back({account: Usage(engine_seconds=seconds * share / total) for account, share in shares.items()})

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
