"""What was used lately: for rates."""

import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from cookhouse.engine.contract import Amount

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
