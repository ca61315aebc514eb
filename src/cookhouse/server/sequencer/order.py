"""In which order the requests of one model run, decided with numbers and times alone.

Requests run in the order of their `seq_id`, which is the order in which the client made them: the chunks of one call
arrive in any order, and neither a sum nor a step may depend on it. One whose predecessors have not arrived waits
`gap_seconds` for them and no longer, since some never come: an optimizer step just as a pass, which it would otherwise
overtake. A request that comes later than that runs when it comes.
"""

import heapq
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class ModelOrder(Generic[T]):
    """The requests of one model that wait for their turn, of whatever kind `T` is."""

    gap_seconds: float
    _next_seq_id: int = 1
    """Up to here, exclusively, every id has come in, or is not waited for any more."""
    _early: set[int] = field(default_factory=set)
    _waiting: list[tuple[int, int, float, T]] = field(default_factory=list)
    """A heap of id, arrival, time of arrival and request."""
    _arrivals: "count[int]" = field(default_factory=count)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, request: T, seq_id: int | None, now: float) -> None:
        """Add a request that arrived `now`; without a `seq_id` it waits for none, and goes before those with one."""
        if seq_id is not None:
            self.note(seq_id)
        heapq.heappush(self._waiting, (seq_id or 0, next(self._arrivals), now, request))

    def note(self, seq_id: int) -> None:
        """A request with this id has come in, whether or not it is to run."""
        if seq_id >= self._next_seq_id:
            self._early.add(seq_id)
        while self._next_seq_id in self._early:
            self._early.remove(self._next_seq_id)
            self._next_seq_id += 1

    def ready_at(self) -> float | None:
        """When the first request may run: 0 for now, the end of its patience, or None where nothing waits."""
        if not self._waiting:
            return None
        seq_id, _, arrived_at, _ = self._waiting[0]
        return arrived_at + self.gap_seconds if seq_id > self._next_seq_id else 0.0

    def first(self) -> T:
        """The request that is next."""
        return self._waiting[0][-1]

    def take(self) -> T:
        """The first request; nothing before it is waited for any more."""
        seq_id, _, _, request = heapq.heappop(self._waiting)
        if seq_id > self._next_seq_id:
            self._next_seq_id = seq_id
            self._early = {early for early in self._early if early >= seq_id}
            self.note(seq_id)
        return request

    def drain(self) -> list[T]:
        """All that waits, in order; nothing waits afterwards."""
        drained = [request for *_, request in sorted(self._waiting, key=lambda one: one[:2])]
        self._waiting.clear()
        return drained
