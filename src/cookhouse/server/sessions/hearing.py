"""For how long a client has said nothing: counted only while the server itself was awake.

a request, or a poll that is open      of its session
a body on its way                      of all sessions of its tenant: whose it is stands in it
the server wakes up                    of all sessions
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LATE_SECONDS = 5.0
"""A look that comes so much later than it was to has found the process stopped, or starved."""


class Hearing:
    """Lives on the event loop."""

    def __init__(self) -> None:
        self.awake_since = float("-inf")
        """When it woke up last."""
        self._due_at: float | None = None
        self._num_polls: dict[str, int] = {}
        """Of those that are open, by session."""
        self._bodies: dict[object, tuple[str, float]] = {}
        """Of those on their way, the tenant, and when something of it came last."""

    def look(self, next_in_seconds: float) -> None:
        """Note that the server is awake, which looks again in so many seconds."""
        now = time.monotonic()
        if self._due_at is not None and now - self._due_at > _LATE_SECONDS:
            self.awake_since = now
        self._due_at = now + next_in_seconds

    @contextmanager
    def polling(self, session_id: str) -> Iterator[None]:
        """Within, a poll of a session's client is open."""
        self._num_polls[session_id] = self._num_polls.get(session_id, 0) + 1
        try:
            yield
        finally:
            self._num_polls[session_id] -= 1
            if not self._num_polls[session_id]:
                del self._num_polls[session_id]

    @contextmanager
    def receiving(self, owner: str) -> Iterator[Callable[[], None]]:
        """Within, a body of a tenant's is on its way; what it gives is called for each part that has come."""
        body = object()

        def note() -> None:
            self._bodies[body] = owner, time.monotonic()

        note()
        try:
            yield note
        finally:
            del self._bodies[body]

    def silent_seconds(self, session_id: str, owner: str, heard_at: float) -> float:
        """Since a session was heard of, which its own requests last did at `heard_at`."""
        now = time.monotonic()
        if session_id in self._num_polls:
            return 0.0
        bodies = (at for whose, at in self._bodies.values() if whose == owner)
        return now - max(heard_at, self.awake_since, *bodies)
