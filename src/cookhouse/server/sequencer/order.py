"""In which order the requests of one model run, decided with numbers and times alone.

Requests run in the order of their `seq_id`, which is the order in which the client made them: the chunks of one call
arrive in any order, and neither a sum nor a step may depend on it. One whose predecessors have not arrived waits
`gap_seconds` for them and no longer, since some never come: an optimizer step just as a pass, which it would otherwise
overtake. A request that comes later than that runs when it comes.

What has run and runs again, in an engine that lost the model, goes first, in the order in which it ran.
"""

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SeenIds:
    """The `seq_id`s of a model that have come in, and up to which they are not waited for any more.

    Held as ranges: what they take grows with the gaps, not with the ids.
    """

    def __init__(self, ranges: Sequence[Sequence[int]] = (), next_id: int = 1, taken_to: int = 1) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        self.next_id = next_id
        """Up to here, exclusively, every id has come in, or is not waited for any more."""
        self.taken_to = taken_to
        """One more than the largest id that has had its turn."""

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> "SeenIds":
        return cls(content["ranges"], content["next_id"], content["taken_to"])

    def to_json(self) -> Mapping[str, Any]:
        ranges = [list(one) for one in zip(self._starts, self._ends, strict=True)]
        return {"ranges": ranges, "next_id": self.next_id, "taken_to": self.taken_to}

    def __contains__(self, seq_id: int) -> bool:
        at = bisect_right(self._starts, seq_id) - 1
        return at >= 0 and seq_id < self._ends[at]

    def add(self, seq_id: int) -> None:
        """Take note of an id; again does nothing."""
        at = bisect_right(self._starts, seq_id)
        joins_left = at > 0 and seq_id <= self._ends[at - 1]
        joins_right = at < len(self._starts) and seq_id + 1 == self._starts[at]
        if joins_left and seq_id < self._ends[at - 1]:
            return
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_left:
            self._ends[at - 1] += 1
        elif joins_right:
            self._starts[at] = seq_id
        else:
            self._starts.insert(at, seq_id)
            self._ends.insert(at, seq_id + 1)
        self._advance()

    def take(self, seq_id: int) -> None:
        """Take note that an id has its turn: nothing before it is waited for any more."""
        self.taken_to = max(self.taken_to, seq_id + 1)
        self.next_id = max(self.next_id, seq_id)
        self._advance()

    def _advance(self) -> None:
        at = bisect_right(self._starts, self.next_id) - 1
        if at >= 0:
            self.next_id = max(self.next_id, self._ends[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Generic[T]):
    """A request whose turn it is."""

    request: T
    is_in_order: bool
    """Whether the ids alone say that it comes here, whatever else comes in; one that runs again is where it was."""


@dataclass(slots=True)
class ModelOrder(Generic[T]):
    """The requests of one model that wait for their turn, of whatever kind `T` is."""

    gap_seconds: float
    seen: SeenIds = field(default_factory=SeenIds)
    patient_to: float = 0.0
    """Until then predecessors are waited for in any case: after a restart, when clients send again what was lost."""
    _waiting: list[tuple[bool, int, int, int | None, float, T]] = field(default_factory=list)
    """A heap: whether it is new, the id that decides (0 for one that runs again), arrival, id, time of arrival,
    request."""
    _arrivals: "count[int]" = field(default_factory=count)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, request: T, seq_id: int | None, now: float) -> None:
        """Add a request that arrived `now`; without a `seq_id` it goes before those with one, and behind those without
        one that came earlier: after a restart these stand behind ids.
        """
        if seq_id is not None:
            self.seen.add(seq_id)
        place = self._last_place_without_id() if seq_id is None else seq_id
        heapq.heappush(self._waiting, (True, place, next(self._arrivals), seq_id, now, request))

    def put_late(self, request: T, seq_id: int | None, before: int, now: float) -> None:
        """Add one that has not run although some behind it may have: after those with ids below `before`."""
        if seq_id is not None:
            self.seen.add(seq_id)
        heapq.heappush(self._waiting, (True, before, next(self._arrivals), seq_id, now, request))

    def _last_place_without_id(self) -> int:
        return max((place for is_new, place, _, seq_id, *_ in self._waiting if is_new and seq_id is None), default=0)

    def put_again(self, request: T, seq_id: int | None) -> None:
        """Add one that has run, after those that have been added so, and before all others."""
        if seq_id is not None:
            self.seen.add(seq_id)
        heapq.heappush(self._waiting, (False, 0, next(self._arrivals), seq_id, 0.0, request))

    def ready_at(self) -> float | None:
        """Time at which the first request may run: 0 for now, the end of its patience, or None where nothing waits."""
        if not self._waiting:
            return None
        is_new, seq_id, _, _, arrived_at, _ = self._waiting[0]
        if not is_new or seq_id <= self.seen.next_id:
            return 0.0
        return max(arrived_at + self.gap_seconds, self.patient_to)

    def first(self) -> T:
        """The request that is next."""
        return self._waiting[0][-1]

    def take(self) -> Ready[T]:
        """The first request; nothing before it is waited for any more."""
        is_new, _, _, seq_id, _, request = heapq.heappop(self._waiting)
        is_in_order = not is_new or (seq_id is not None and self.seen.taken_to <= seq_id <= self.seen.next_id)
        if seq_id is not None:
            self.seen.take(seq_id)
        return Ready(request=request, is_in_order=is_in_order)

    def drain(self) -> list[T]:
        """All that waits, in order; nothing waits afterwards."""
        drained = [request for *_, request in sorted(self._waiting, key=lambda one: one[:3])]
        self._waiting.clear()
        return drained

    def drop_again(self) -> list[T]:
        """Take out those that were to run again, in order."""
        dropped = [request for is_new, *_, request in sorted(self._waiting, key=lambda one: one[:3]) if not is_new]
        self._waiting = [one for one in self._waiting if one[0]]
        heapq.heapify(self._waiting)
        return dropped
