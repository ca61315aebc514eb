"""Placement of requests: answered here, or by the server that holds their session. Lives on the event loop.

ours ──► here               coming ──► waits ──► here
another's ──► sent on       nobody's, or of one that leaves ──► waits until it is somebody's
of no session that lives ──► here: whoever is asked says that it has ended
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from cookhouse.errors import InputError
from cookhouse.server.leases.forwarding import MAX_HOPS, Forwarding, UnreachableError, not_here, passed_by
from cookhouse.server.leases.leases import Leases
from cookhouse.server.leases.members import Holder
from cookhouse.server.sequencer.futures import Futures
from cookhouse.server.sessions.sessions import session_of_request

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.1
_LOOK_SECONDS = 0.5
"""How often it is asked whether the server that is to answer lives: one that was stopped leaves connections open."""
_NUMBERS = "seq_id", "model_seq_id", "sampling_session_seq_id"
_UNSURE = (
    "the server that holds its session ended while it was asked, and may have done it: a request without a seq_id is "
    "not sent there twice"
)


class ElsewhereError(Exception):
    """A request has its answer, from another server."""

    def __init__(self, answer: Response) -> None:
        super().__init__("answered by another server")
        self.answer = answer


class Placing:
    def __init__(self, leases: Leases, forwarding: Forwarding, futures: Futures, *, hold_seconds: float) -> None:
        """`hold_seconds`: how long a request waits at most for its session to be taken over."""
        self._leases = leases
        self._forwarding = forwarding
        self._futures = futures
        self._hold_seconds = hold_seconds

    async def check(self, request: Request, content: object, body: bytes | bytearray | None, *, waits: bool) -> None:
        """Return where a request is to be answered here. `content` names its session, or something of it; `body` is as
        it came. `waits`: it is not for a server that leaves, since it would change something.

        Raises:
            ElsewhereError: it has been answered.
            StorageError: the database cannot be read now.
        """
        session_id = await self._session_of(content, request.path_params)
        if session_id is None or self._leases.holds(session_id):
            return
        can_repeat = not waits or _is_numbered(content)
        answer = await self._elsewhere(request, session_id, body or b"", waits=waits, can_repeat=can_repeat)
        if answer is not None:
            raise ElsewhereError(answer)

    async def to_another(self, request: Request) -> Response | None:
        """Place a request whose body has not been read at another server, and return the answer; None: it stays here.
        One that another server sent goes back to it at once: it has the body, and waits for who takes the session over.
        """
        if passed_by(request):
            return not_here()
        others = self._leases.others()
        if not others:
            return None
        try:
            return await self._forwarding.send(request, random.choice(others).url)
        except UnreachableError as error:
            _log.info("a request could not be sent on: %s", error)
            return None
        except InputError as error:
            return JSONResponse({"detail": str(error)}, status_code=400)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it

    async def parts(self, path: str, api_key: str) -> Mapping[str, Any]:
        """Answers of the other servers to a GET of their own part of something, by server id. One that does not answer
        is left out: what it alone knows is written down, or counted again by the server that takes its sessions over.
        """
        others = self._leases.answering()
        found = await asyncio.gather(*(self._part(member.url, path, api_key) for member in others))
        return {member.server_id: part for member, part in zip(others, found, strict=True) if part is not None}

    async def _part(self, url: str, path: str, api_key: str) -> Any:
        try:
            return await self._forwarding.get(url, path, api_key)
        except UnreachableError as error:
            _log.info("a server does not say what it holds: %s", error)
            return None

    async def _elsewhere(
        self, request: Request, session_id: str, body: bytes | bytearray, *, waits: bool, can_repeat: bool
    ) -> Response | None:
        """None: it is answered here after all."""
        passed = passed_by(request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._hold_seconds
        while loop.time() < deadline:
            if self._leases.holds(session_id):
                return None
            if self._leases.is_coming(session_id):
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            holder = await self._leases.find(session_id)
            if holder is None:
                return None
            if holder.server_id == self._leases.server_id:
                if self._leases.is_current and not self._leases.is_coming(session_id):
                    return None  # it has just ended, which is being written
                await asyncio.sleep(_PAUSE_SECONDS)
                self._leases.forget(session_id)
                continue
            is_elsewhere = holder.url is not None and holder.server_id not in passed
            if is_elsewhere and len(passed) >= MAX_HOPS:
                return not_here()
            if is_elsewhere and not (waits and holder.is_leaving):
                answer = await self._sent(request, holder, body, can_repeat=can_repeat)
                if answer is not None:
                    return answer
            self._leases.forget(session_id)
            await self._leases.change()
        return not_here()

    async def _sent(
        self, request: Request, holder: Holder, body: bytes | bytearray, *, can_repeat: bool
    ) -> Response | None:
        """None: that server does not answer, or holds the session no more, and may be asked again."""
        assert holder.url is not None
        sending = asyncio.ensure_future(self._forwarding.send(request, holder.url, body))
        try:
            while not sending.done():
                await asyncio.wait([sending], timeout=_LOOK_SECONDS)
                if not sending.done() and not self._leases.lives(holder):
                    return None if can_repeat else _unsure()
            return sending.result()
        except UnreachableError as error:
            _log.info("a request waits: %s", error)
            if not (can_repeat or error.is_unsent):
                return _unsure()
            await asyncio.sleep(_PAUSE_SECONDS)
            return None
        finally:
            sending.cancel()

    async def _session_of(self, content: object, path: Mapping[str, Any]) -> str | None:
        """The session that a request is of."""
        for name in ("session_id", "sampler_id"):
            if isinstance(found := path.get(name), str):
                return found.partition(":")[0]
        if isinstance(content, str):
            return content.partition(":")[0]
        target = getattr(content, "target", content)
        for name in ("session_id", "model_id", "sampling_session_id"):
            if isinstance(found := getattr(target, name, None), str):
                return found.partition(":")[0]
        request_id = getattr(content, "request_id", None)
        if not isinstance(request_id, str):
            return None
        if (named := session_of_request(request_id)) is not None:
            return named
        if self._futures.peek(request_id) is not None:
            return None
        return await asyncio.to_thread(self._leases.members.session_of, request_id)


def _is_numbered(content: object) -> bool:
    """True if a server knows a copy of a request by its number."""
    return any(getattr(content, name, None) is not None for name in _NUMBERS)


def _unsure() -> JSONResponse:
    return JSONResponse({"detail": _UNSURE}, status_code=503, headers={"Retry-After": "1"})
