"""Addresses of rollouts: one server on the loopback of this machine, in the event loop of the run.

http://127.0.0.1:PORT/TOKEN is the address of one rollout, and its key is the same token: it cannot be guessed.
"""

import asyncio
import contextlib
import contextvars
import secrets
import socket
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import uvicorn
from starlette.applications import Starlette

from cookhouse.agents.calls import NoRolloutError, routes
from cookhouse.agents.rollout import Rollout

HOST: Final = "127.0.0.1"
_BACKLOG: Final = 1024
_MAX_ENDED: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The place where the model of one rollout is asked."""

    url: str
    """Without `/v1`, which OpenAI's clients want behind it, and Anthropic's do not."""
    key: str

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"


class Endpoint:
    """Serves the rollouts that are open, and ends with the last of them."""

    def __init__(self) -> None:
        self._open: dict[str, Rollout] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind((HOST, 0))
        self._listener.listen(_BACKLOG)
        self._server = _Server(
            uvicorn.Config(
                Starlette(routes=routes(self.rollout_of)),
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                http="h11",
                ws="none",
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        # In a context of its own: notes are those of a rollout, and not of whichever was first.
        self._serving = asyncio.create_task(
            self._server.serve(sockets=[self._listener]), name="addresses of rollouts", context=contextvars.Context()
        )

    def open(self, rollout: Rollout) -> Address:
        """Begin to answer the calls of a rollout."""
        token = secrets.token_urlsafe(24)
        self._open[token] = rollout
        return Address(url=f"http://{HOST}:{self._listener.getsockname()[1]}/{token}", key=token)

    def rollout_of(self, token: str) -> Rollout:
        """Raises `NoRolloutError` where none has this token."""
        if token in self._open:
            return self._open[token]
        if token in self._ended:
            raise NoRolloutError("the rollout of this address is over; nothing more is answered here")
        raise NoRolloutError("there is no rollout at this address, or the key is not the one of its address")

    async def close(self, address: Address) -> None:
        """Answer no further call of a rollout."""
        self._open.pop(address.key).end()
        self._ended[address.key] = None
        if len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)
        if self._open:
            return
        _ENDPOINTS.pop(asyncio.get_running_loop(), None)
        self._server.should_exit = True
        await asyncio.wait((self._serving,))
        self._listener.close()


class _Server(uvicorn.Server):
    """Leaves signals to the run."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


_ENDPOINTS: WeakKeyDictionary[asyncio.AbstractEventLoop, Endpoint] = WeakKeyDictionary()


def running_endpoint() -> Endpoint:
    """The endpoint of the running loop, started where there is none; one rollout has to be opened at once."""
    loop = asyncio.get_running_loop()
    endpoint = _ENDPOINTS.get(loop)
    if endpoint is None:
        endpoint = _ENDPOINTS[loop] = Endpoint()
    return endpoint
