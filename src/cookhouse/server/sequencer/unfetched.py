"""Results that nobody has fetched: how much of them is kept."""

from collections import OrderedDict
from collections.abc import Sequence

_RECORD_BYTES = 1024
"""About what a future takes beside the body of its result."""


class Unfetched:
    """Counts results in bytes. Beyond `max_bytes`, of all tenants together, the one with the most loses its oldest."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._sizes: dict[str, OrderedDict[str, int]] = {}
        """By tenant and request."""
        self._totals: dict[str, int] = {}

    def add(self, request_id: str, owner: str, body_bytes: int) -> Sequence[str]:
        """Count a result; the requests whose results are to be dropped, and are no longer counted."""
        num_bytes = body_bytes + _RECORD_BYTES
        self._sizes.setdefault(owner, OrderedDict())[request_id] = num_bytes
        self._totals[owner] = self._totals.get(owner, 0) + num_bytes
        dropped = []
        while sum(self._totals.values()) > self.max_bytes:
            largest = max(self._totals, key=self._totals.__getitem__)
            dropped.append(next(iter(self._sizes[largest])))
            self.discard(dropped[-1], largest)
        return dropped

    def discard(self, request_id: str, owner: str) -> None:
        """Stop counting a result; one that is not counted is left as it is."""
        if request_id not in self._sizes.get(owner, ()):
            return
        self._totals[owner] -= self._sizes[owner].pop(request_id)
        if not self._sizes[owner]:
            del self._sizes[owner], self._totals[owner]
