"""Counting what accounts use, until it is told."""

from collections import defaultdict
from collections.abc import Sequence

from cookhouse.engine.contract import Account, Amount, Spent, SpentKind


class Meter:
    """What was used since it was last taken."""

    def __init__(self) -> None:
        self._counted: dict[tuple[Account, SpentKind], float] = defaultdict(float)

    def count(self, account: Account, kind: SpentKind, amount: float) -> None:
        """Put an amount down to an account."""
        if amount:
            self._counted[account, kind] += amount

    def charge(self, served: Sequence[tuple[Account, int]], seconds: float) -> None:
        """Part the time of a turn among those that it served, by weight; equally where all weights are 0."""
        whole = sum(weight for _, weight in served)
        for account, weight in served:
            self.count(account, "engine_seconds", seconds * (weight / whole if whole else 1 / len(served)))

    def take(self) -> Spent | None:
        """What was counted since the last time, if anything."""
        if not self._counted:
            return None
        counted, self._counted = self._counted, defaultdict(float)
        return Spent(amounts=tuple(Amount(account, kind, amount) for (account, kind), amount in counted.items()))
