"""Sequences that wait to be admitted: in queues by owner and session, so that none waits behind another tenant's."""

from collections import deque

from cookhouse.engine.rotation import Rotation
from cookhouse.engine.sampler.sequence import Sequence


class Waiting:
    """First come, first served within a session; sessions of an owner take turns, by the tokens that they have read."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, deque[Sequence]]] = {}
        self._sessions: dict[str, Rotation[str]] = {}
        """By owner."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def owners(self) -> list[str]:
        """Owners that have something waiting."""
        return list(self._queues)

    def append(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self._queue(sequence).append(sequence)

    def appendleft(self, sequence: Sequence) -> None:
        """Queue one that was admitted before: it goes first in its session."""
        self._queue(sequence).appendleft(sequence)

    def head(self, owner: str) -> Sequence:
        """The next one of an owner that has some."""
        return self._queues[owner][self._sessions[owner].order()[0]][0]

    def remove(self, sequence: Sequence, *, num_read: int = 0) -> None:
        """Take one out, of which so many tokens are now read."""
        owner, session = sequence.request.owner, sequence.request.session_id
        self._queues[owner][session].remove(sequence)
        self._length -= 1
        self._sessions[owner].charge(session, num_read)
        if not self._queues[owner][session]:
            del self._queues[owner][session]
            self._sessions[owner].remove(session)
        if not self._queues[owner]:
            del self._queues[owner], self._sessions[owner]

    def num_tokens(self, owner: str, most: int) -> int:
        """Tokens of all that an owner has waiting, counted up to so many."""
        total = 0
        for queue in self._queues[owner].values():
            for sequence in queue:
                total += len(sequence.tokens)
                if total >= most:
                    return most
        return total

    def _queue(self, sequence: Sequence) -> deque[Sequence]:
        owner, session = sequence.request.owner, sequence.request.session_id
        self._length += 1
        self._sessions.setdefault(owner, Rotation()).add(session)
        return self._queues.setdefault(owner, {}).setdefault(session, deque())
