"""What a client knows of one model's requests, and whether their answers can be true."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cookhouse.engine.contract import AdamStep, ForwardBackward
from cookhouse.engine.simulated import State, fraction, passed, stepped

_EPSILON_SECONDS = 1e-3
LOADED = -1.0
"""In place of the number of an answer that has none."""


class BrokenPromiseError(AssertionError):
    """An answer that a server must not give."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The state that a load puts in place of the model's."""

    state: State


Work = ForwardBackward | AdamStep | Loaded


@dataclass(slots=True, kw_only=True)
class Asked:
    """A request on a model."""

    seq_id: int
    work: Work | None
    """None: one that changes nothing, such as a publication."""
    score: ForwardBackward | None = None
    """Of one that only looks at the model."""
    sent_at: float | None = None
    """When it was sent first, if that is not when it arrived: its server was busy, or died."""
    arrived_at: float
    """When it had been accepted."""
    number: float | None = None
    """Of its answer: loss or norm. None: it failed."""

    def after(self, state: State) -> State:
        """The state that it makes of a state."""
        if isinstance(self.work, AdamStep):
            return stepped(state, self.work)
        if isinstance(self.work, Loaded):
            return self.work.state
        assert self.work is not None
        return passed(state, self.work)


@dataclass(slots=True)
class History:
    """The requests of one model in the order of their ids, and the state that it began with."""

    begin: State
    gap_seconds: float
    asked: list[Asked] = field(default_factory=list)
    state: State = field(init=False)
    """After all that has been explained."""
    ran: list[Asked] = field(default_factory=list)
    """In the order in which they ran."""
    _arrivals: dict[int, float] = field(default_factory=dict)
    _sent: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = self.begin

    def explain(self) -> dict[int, State]:
        """Find the order in which the requests ran, and the state after each, by its id.

        Raises:
            BrokenPromiseError: there is none, or it is not one that a client may rely on.
        """
        left = [
            one
            for one in sorted(self.asked, key=lambda one: one.seq_id)
            if one.work is not None and one.number is not None
        ]
        states = {}
        while left:
            one = self._next(left)
            left.remove(one)
            self.ran.append(one)
            states[one.seq_id] = self.state
        self._check_order()
        return states

    def _next(self, left: Sequence[Asked]) -> Asked:
        loads = [one for one in left if one.number == LOADED]
        if loads and left[0] is loads[0]:
            self.state = loads[0].after(self.state)
            return loads[0]
        for one in left:
            state = one.after(self.state)
            if fraction(state) == one.number:
                self.state = state
                return one
        if loads:
            self.state = loads[0].after(self.state)
            return loads[0]
        raise BrokenPromiseError(
            f"no order explains the answers of requests {[one.seq_id for one in left]}: work was lost, doubled, done "
            "in part, or not this model's"
        )

    def was_late(self, seq_id: int) -> bool:
        """Whether a request came when one behind it had waited long enough, so that nobody waits for it any more."""
        behind = [at for each, at in self._sent.items() if each > seq_id]
        return bool(behind) and self._arrivals[seq_id] >= min(behind) + self.gap_seconds - _EPSILON_SECONDS

    def state_at(self, seq_id: int, states: Mapping[int, State]) -> State | None:
        """The state that a request saw which changes nothing; None where lateness leaves it open.

        `states` are those that `explain` gives.
        """
        before = [each for each in states if each < seq_id]
        if any(map(self.was_late, [*before, seq_id])):
            return None
        return states[max(before)] if before else self.begin

    def _check_order(self) -> None:
        self._arrivals = {one.seq_id: one.arrived_at for one in self.asked}
        self._sent = {one.seq_id: one.arrived_at if one.sent_at is None else one.sent_at for one in self.asked}
        for one, earlier in self._inversions():
            if not self.was_late(one.seq_id):
                raise BrokenPromiseError(
                    f"request {one.seq_id} ran after {earlier.seq_id}, though it came at {one.arrived_at:.3f} and was "
                    f"to be waited for: {self._arrivals}"
                )

    def _inversions(self) -> Iterator[tuple[Asked, Asked]]:
        """Requests that ran after one with a larger id: each with the one of the largest."""
        largest: Asked | None = None
        for one in self.ran:
            if largest is None or one.seq_id > largest.seq_id:
                largest = one
            else:
                yield one, largest
