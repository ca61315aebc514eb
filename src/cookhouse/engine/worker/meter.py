"""Counting what accounts use, until it is told."""

from collections import defaultdict
from collections.abc import Collection, Sequence

from cookhouse.engine.contract import Account, Amount, Spent, SpentKind

Served = tuple[Account, str, int]
"""Whom a turn serves, for which command ("" for none), and by what weight."""


class Meter:
    """What was used since it was last taken."""

    def __init__(self) -> None:
        self._counted: dict[tuple[Account, SpentKind, str], float] = defaultdict(float)

    def count(self, account: Account, kind: SpentKind, amount: float, command_id: str) -> None:
        """Put an amount down to an account."""
        if amount:
            self._counted[account, kind, command_id] += amount

    def charge(self, served: Sequence[Served], seconds: float) -> None:
        """Part the time of a turn among those that it served, by weight; equally where all weights are 0."""
        whole = sum(weight for *_, weight in served)
        for account, command_id, weight in served:
            self.count(account, "engine_seconds", seconds * (weight / whole if whole else 1 / len(served)), command_id)

    def take(self, command_ids: Collection[str] | None = None) -> Spent | None:
        """What was counted since it was last taken, if anything; `command_ids`: for these commands."""
        keys = [key for key in self._counted if command_ids is None or key[2] in command_ids]
        if not keys:
            return None
        return Spent(amounts=tuple(Amount(*key[:2], self._counted.pop(key), key[2]) for key in keys))
