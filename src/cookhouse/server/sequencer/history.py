"""What has run on a model since its last state: what a worker that lost the model has to run again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from cookhouse.server.sessions.sessions import Snapshot
from cookhouse.server.storage.journal import Entry, State

LOAD = "load_weights"
"""The kind of request that loads files."""


@dataclass(slots=True, kw_only=True)
class Ran:
    """A request that has had its turn."""

    entry: Entry
    changes_model: bool
    taken_to: int
    """One more than the largest `seq_id` that had had its turn by then."""
    num_losses: int = 0
    """Workers that were lost while it was the first of its model without a result."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A state that is on the disk, and what it covers, all of which has its result."""

    state: State
    covered: Collection[str]


@dataclass(slots=True)
class History:
    """Of one model."""

    state: State | None = None
    ran: dict[str, Ran] = field(default_factory=dict)
    """By request, in the order of their turns."""
    published: dict[str, Snapshot] = field(default_factory=dict)
    """Weights of samplers, by id, of which no state has taken note that they have files."""
    finished: set[str] = field(default_factory=set)
    """Requests that need not run again, whose entries tell that they came."""
    num_bytes: int = 0
    """Of the requests in `ran`."""
    busy_seconds: float = 0.0
    """How long the worker took for them."""
    busy_to: float = 0.0
    """Until when the worker was last busy with them."""
    is_saving: bool = False
    """Whether a state is being written."""
    coming: Coming | None = None
    """While a state is being committed, which takes as long as the store is locked or full."""
    num_moves: int = 0
    """How often the model was taken from a worker, which was lost or has left."""
    next_index: int = 0
    """The `run_index` of the next request that has one."""
    _indexed: set[str] = field(default_factory=set)

    def add(self, entry: Entry, *, changes_model: bool, taken_to: int) -> None:
        """A request has its turn; one that runs again stays where it was, and as it was."""
        if entry.request_id not in self.ran:
            self.ran[entry.request_id] = Ran(entry=entry, changes_model=changes_model, taken_to=taken_to)
            self.num_bytes += entry.num_bytes
            if entry.run_index is not None:
                self._indexed.add(entry.request_id)
                self.next_index = max(self.next_index, entry.run_index + 1)

    def up_to(self, request_id: str) -> Sequence[str]:
        """Those that had their turns before a request and it itself; others of `ran` may have to run again."""
        names = list(self.ran)
        return names[: names.index(request_id) + 1]

    def forget_published(self) -> None:
        """A worker was lost: weights without a file are published again."""
        self.published = {name: snapshot for name, snapshot in self.published.items() if snapshot.has_file}

    def newest(self) -> tuple[State | None, Sequence[Ran]]:
        """The newest state that a worker can start from, and what ran since."""
        if self.coming is None:
            return self.state, list(self.ran.values())
        return self.coming.state, [ran for name, ran in self.ran.items() if name not in self.coming.covered]

    def loads(self) -> Sequence[Ran]:
        """Requests that have files of their own, which they loaded."""
        return [ran for ran in self.ran.values() if ran.entry.kind == LOAD]

    def unindexed(self) -> Sequence[str]:
        """Those whose place is not written down; from now on it is taken to be."""
        names = [name for name in self.ran if name not in self._indexed]
        self._indexed.update(names)
        return names

    def finish(self, request_id: str) -> None:
        """Note that a request need not run again."""
        self.remove([request_id])
        self.finished.add(request_id)

    def remove(self, request_ids: Collection[str]) -> None:
        """Forget requests that will not have to run again."""
        for request_id in request_ids:
            ran = self.ran.pop(request_id, None)
            self._indexed.discard(request_id)
            self.finished.discard(request_id)
            if ran is not None:
                self.num_bytes -= ran.entry.num_bytes

    def count(self, sent_at: float | None, answered_at: float | None) -> None:
        """Add the time that the worker took for a request; requests under way at once do not count twice."""
        if sent_at is None or answered_at is None:
            return
        self.busy_seconds += max(0.0, answered_at - max(sent_at, self.busy_to))
        self.busy_to = max(self.busy_to, answered_at)
