"""What a client knows of one model's requests, and whether their answers can be true."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    _arrivals: dict[int, float] = field(default_factory=dict)
    _sent: dict[int, float] = field(default_factory=dict)

    def explain(self) -> dict[int, State]:
        """Find an order in which the requests may have run, and the state after each, by its id.

        Raises:
            BrokenPromiseError: there is none, or none that a client may rely on.
        """
        self._arrivals = {one.seq_id: one.arrived_at for one in self.asked}
        self._sent = {one.seq_id: one.arrived_at if one.sent_at is None else one.sent_at for one in self.asked}
        asked = sorted(self.asked, key=lambda one: one.seq_id)
        ran = [one for one in asked if one.work is not None and one.number is not None]
        states = self._order(ran, self._may_follow)
        if states is not None:
            return states
        in_any_order = self._order(ran, lambda _one, _largest: True)
        if in_any_order is not None:
            self._tell_inversion(list(in_any_order))
        raise BrokenPromiseError(
            f"no order explains the answers of requests {[one.seq_id for one in ran]}: work was lost, doubled, done "
            "in part, or not this model's"
        )

    def _order(self, ran: Sequence[Asked], may_follow: Callable[[Asked, int], bool]) -> dict[int, State] | None:
        """The states after each, in an order that the answers fit; None: there is none.

        A load fits anywhere, and may bring back a state that was there before: what fits first need not be right.
        """
        path: list[tuple[Asked, State]] = []
        tried = set()
        choices = [self._fitting(ran, self.begin, 0, may_follow)]
        while choices:
            if len(path) == len(ran):
                return {one.seq_id: state for one, state in path}
            chosen = next(choices[-1], None)
            if chosen is None:
                choices.pop()
                if path:
                    path.pop()
                continue
            path.append(chosen)
            done = {one.seq_id for one, _ in path}
            at = (chosen[1], frozenset(done))
            left = [] if at in tried else [one for one in ran if one.seq_id not in done]
            tried.add(at)
            choices.append(self._fitting(left, chosen[1], max(done), may_follow))
        return None

    @staticmethod
    def _fitting(
        left: Sequence[Asked], state: State, largest: int, may_follow: Callable[[Asked, int], bool]
    ) -> Iterator[tuple[Asked, State]]:
        """Requests that may have run on a state, after one of the `largest` id, and what each makes of it."""
        for one in left:
            if may_follow(one, largest):
                after = one.after(state)
                if one.number in (LOADED, fraction(after)):
                    yield one, after

    def _may_follow(self, one: Asked, largest: int) -> bool:
        return one.seq_id > largest or self.was_late(one.seq_id)

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

    def _tell_inversion(self, ran: Sequence[int]) -> None:
        """Raise which request ran after one with a larger id, though it was in time."""
        largest = 0
        for seq_id in ran:
            if seq_id < largest and not self.was_late(seq_id):
                raise BrokenPromiseError(
                    f"request {seq_id} ran after {largest}, though it came at {self._arrivals[seq_id]:.3f} and was "
                    f"to be waited for: {self._arrivals}"
                )
            largest = max(largest, seq_id)
