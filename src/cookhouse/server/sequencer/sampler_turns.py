"""Turns of the weights that a tenant samples from, where only so many may be in use at a time.

A sample of weights in use begins at once, unless others wait: then it waits behind them, so that each gets its turn.
Samples of a base model itself never wait.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable


class SamplerTurns:
    """By owner. Lives on the event loop."""

    def __init__(self, max_samplers: int | None) -> None:
        """`max_samplers`: weights in use at a time; None: any number."""
        self._max_samplers = max_samplers
        self._running: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Samples in their turn, by owner and weights."""
        self._waiting: defaultdict[str, OrderedDict[str, dict[str, Callable[[], None]]]] = defaultdict(OrderedDict)
        """What begins them, by owner, weights and request."""

    def begin(self, owner: str, snapshot_id: str | None, request_id: str, start: Callable[[], None]) -> None:
        """Call `start` when it is the turn of a sample's weights."""
        if snapshot_id is None or self._max_samplers is None:
            start()
            return
        self._waiting[owner].setdefault(snapshot_id, {})[request_id] = start
        self._advance(owner)

    def is_waiting(self, owner: str, snapshot_id: str | None, request_id: str) -> bool:
        if snapshot_id is None or owner not in self._waiting:
            return False
        return request_id in self._waiting[owner].get(snapshot_id, {})

    def end(self, owner: str, snapshot_id: str | None, request_id: str) -> None:
        """A sample is done, or is not to begin any more."""
        if snapshot_id is None or self._max_samplers is None:
            return
        if self.is_waiting(owner, snapshot_id, request_id):
            del self._waiting[owner][snapshot_id][request_id]
            if not self._waiting[owner][snapshot_id]:
                del self._waiting[owner][snapshot_id]
        else:
            running = self._running[owner]
            running[snapshot_id] -= 1
            if not running[snapshot_id]:
                del running[snapshot_id]
        self._advance(owner)

    def _advance(self, owner: str) -> None:
        assert self._max_samplers is not None
        running, waiting = self._running[owner], self._waiting[owner]
        while waiting:
            snapshot_id = next(iter(waiting))
            if snapshot_id not in running and len(running) >= self._max_samplers:
                return
            for start in waiting.pop(snapshot_id).values():
                running[snapshot_id] += 1
                start()
        del self._waiting[owner]
        if not running:
            del self._running[owner]
