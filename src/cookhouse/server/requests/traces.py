"""Traces of sessions for Perfetto: when their requests came and were answered. Lives on the event loop.

In memory and bounded: the last sessions of this process, and the last requests of each.
"""

import json
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import chain

from cookhouse.errors import InputError
from cookhouse.server.access.signing import LINK_SECONDS, Signer
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.sequencer.futures import Future

_MAX_SESSIONS = 64
_MAX_REQUESTS = 20_000
"""Per session; about 200 bytes each, and as many when written."""


@dataclass(frozen=True, slots=True)
class _Span:
    name: str
    request_id: str
    begun_at: float
    ended_at: float
    is_failure: bool


class Traces:
    """Takes note of futures as they finish, and writes a session's in the trace event format.

    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """

    def __init__(self, secret: bytes | None = None) -> None:
        """For `secret` see `Signer`."""
        self._spans: OrderedDict[str, deque[_Span]] = OrderedDict()
        self._signer = Signer("ask for a new one with RestClient.export_session_trace()", secret)

    def note(self, future: Future) -> None:
        """Remember a future that has finished."""
        assert future.result is not None
        name = "sample" if future.is_sample else future.result.kind or "training request"
        span = _Span(name, future.request_id, future.begun_at, time.time(), future.result.is_failure)
        self._spans.setdefault(future.session_id, deque(maxlen=_MAX_REQUESTS)).append(span)
        self._spans.move_to_end(future.session_id)
        if len(self._spans) > _MAX_SESSIONS:
            self._spans.popitem(last=False)

    def link(self, session_id: str) -> str:
        """The route of a session's trace, for an hour.

        Raises:
            InputError: no request of the session is remembered.
        """
        if session_id not in self._spans:
            raise InputError(
                f"no request of session {session_id!r} is remembered: those of the last {_MAX_SESSIONS} sessions are, "
                "until the server stops"
            )
        expires_at = int(time.time()) + LINK_SECONDS
        return f"session_traces/{session_id}/{expires_at}/{self._signer.sign(expires_at, session_id)}"

    def check(self, session_id: str, expires_at: int, signature: str) -> None:
        """Refuse a link that no server has made, or that has ended. Raises as `follow`."""
        self._signer.check(signature, expires_at, session_id)

    def follow(self, session_id: str, expires_at: int, signature: str) -> bytes:
        """The trace that a link leads to, in JSON.

        Raises:
            NotFoundError: this process did not make the link, or has forgotten the session.
            GoneError: the link has ended.
        """
        self.check(session_id, expires_at, signature)
        if session_id not in self._spans:
            raise NotFoundError(f"the requests of session {session_id!r} are no longer remembered")
        events = chain.from_iterable(_events(span) for span in self._spans[session_id])
        return json.dumps({"traceEvents": list(events), "displayTimeUnit": "ms"}).encode()


def _events(span: _Span) -> list[dict[str, object]]:
    """A beginning and an end that need not nest with those of other requests; times in microseconds."""
    shared: dict[str, object] = {"name": span.name, "cat": "request", "id": span.request_id, "pid": 1, "tid": span.name}
    arguments = {"request_id": span.request_id, "failed": span.is_failure}
    return [
        {**shared, "ph": "b", "ts": span.begun_at * 1e6, "args": arguments},
        {**shared, "ph": "e", "ts": span.ended_at * 1e6},
    ]
