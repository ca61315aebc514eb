"""Tenants that send recorded requests over plain sockets, so that what the SDK costs is in none of it."""

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from typing import Any
from urllib.parse import urlsplit

from bench.recorded import Recorded

_PAUSE_SECONDS = 0.2
"""Before a request that was refused for now is sent again."""
_IN_FLIGHT = 2
"""Steps of a supervised tenant that are sent before the first of them is answered."""


@dataclass
class Done:
    """What was answered when, on the clock of the machine."""

    requests: list[float] = field(default_factory=list)
    """Of all results, and of nothing else that is sent over HTTP."""
    steps: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """Of results: when they came, and the seconds since they were asked for."""
    num_refused: int = 0
    processor_seconds: float = 0.0
    """Of the process that sent all this."""


class Tenant:
    """One model, and connections that stay open. Everything is sent as the SDK sent it, but for identities."""

    def __init__(self, url: str, key: str, recorded: Mapping[str, Recorded], done: Done) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname, parts.port
        self._host = f"Host: {parts.netloc}\r\nX-API-Key: {key}\r\n".encode()
        self._recorded = recorded
        self._done = done
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._seq_id = 0
        self._num_samplers = 0
        self._session_id = self._model_id = ""

    async def create(self) -> None:
        self._session_id = (await self._answer("create_session"))["session_id"]
        created = await self._answer("create_model", session_id=self._session_id)
        self._model_id = json.loads(await self._wait_for(created["request_id"]))["model_id"]

    async def train(self) -> "asyncio.Future[list[bytes]]":
        """Send a pass and a step; what waits for both results."""
        sent = [
            await self._answer(route, model_id=self._model_id, seq_id=self._next_id())
            for route in ("forward_backward", "optim_step")
        ]
        return asyncio.gather(*(self._result(each) for each in sent))

    async def publish(self) -> str:
        """New weights for a sampler, whose identity is returned."""
        self._num_samplers += 1
        sent = await self._answer(
            "save_weights_for_sampler",
            model_id=self._model_id,
            seq_id=self._next_id(),
            sampling_session_seq_id=self._num_samplers,
        )
        return str(json.loads(await self._result(sent))["sampling_session_id"])

    async def sample(self, sampler_id: str, number: int) -> None:
        """Send so many requests at once, and wait for their results."""

        async def one(seq_id: int) -> None:
            sent = await self._answer("asample", sampling_session_id=sampler_id, seq_id=seq_id)
            await self._result(sent)

        await asyncio.gather(*(one(seq_id) for seq_id in range(number)))

    def _next_id(self) -> int:
        self._seq_id += 1
        return self._seq_id

    async def _result(self, sent: Mapping[str, Any]) -> bytes:
        began_at = time.monotonic()
        result = await self._wait_for(sent["request_id"])
        now = time.monotonic()
        self._done.requests.append(now)
        self._done.waits.append((now, now - began_at))
        return result

    async def _wait_for(self, request_id: str) -> bytes:
        while True:
            status, body = await self._post("retrieve_future", request_id=request_id)
            if status == 200:
                return body
            assert status == 408, body

    async def _answer(self, route: str, **fields: Any) -> Mapping[str, Any]:
        while True:
            status, body = await self._post(route, **fields)
            if status == 200:
                answer: Mapping[str, Any] = json.loads(body)
                return answer
            assert status == 429, body
            self._done.num_refused += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _post(self, route: str, **fields: Any) -> tuple[int, bytes]:
        recorded = self._recorded[route]
        body = recorded.with_fields(**fields)
        connection = self._free.pop() if self._free else await asyncio.open_connection(*self._address)
        reader, writer = connection
        head = f"POST {recorded.path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode()
        writer.write(head + self._host + recorded.headers + b"\r\n" + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        content = await reader.readexactly(length)
        self._free.append(connection)
        return int(answer.split(b" ", 2)[1]), content


async def supervised(tenant: Tenant, done: Done, _index: int, _num_requests: int) -> None:
    """A pass and a step, the next ones sent before these are answered."""
    under_way: deque[asyncio.Future[list[bytes]]] = deque()
    try:
        while True:
            under_way.append(await tenant.train())
            if len(under_way) >= _IN_FLIGHT:
                await under_way.popleft()
                done.steps.append(time.monotonic())
    finally:
        for each in under_way:
            each.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def rl(tenant: Tenant, done: Done, index: int, num_requests: int) -> None:
    """New weights, samples of them, and then a pass and a step; every other tenant begins with these."""
    if index % 2:
        await (await tenant.train())
    while True:
        await tenant.sample(await tenant.publish(), num_requests)
        await (await tenant.train())
        done.steps.append(time.monotonic())


LOOPS: Mapping[str, Callable[[Tenant, Done, int, int], Awaitable[None]]] = {"supervised": supervised, "rl": rl}


def replay(
    url: str,
    keys: Sequence[str],
    loop: str,
    recorded: Mapping[str, Recorded],
    num_requests: int,
    ready: Any,
    ended: Event,
) -> Done:
    """Run a tenant of each key until the event, in a process of theirs; `ready` is told when all have their models.

    `num_requests` are those for samples in each step of an `rl` tenant. With several cores the first is left to the
    server. Raises if a request fails.
    """
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    return asyncio.run(_replay(url, keys, loop, recorded, num_requests, ready, ended))


async def _replay(
    url: str,
    keys: Sequence[str],
    loop: str,
    recorded: Mapping[str, Recorded],
    num_requests: int,
    ready: Any,
    ended: Event,
) -> Done:
    done = Done()
    tenants = [Tenant(url, key, recorded, done) for key in keys]
    for tenant in tenants:
        await tenant.create()
    await asyncio.to_thread(ready.wait)
    before = time.process_time()
    running = [
        asyncio.ensure_future(LOOPS[loop](tenant, done, index, num_requests)) for index, tenant in enumerate(tenants)
    ]
    watching = asyncio.ensure_future(asyncio.to_thread(ended.wait))
    finished, _ = await asyncio.wait([watching, *running], return_when=asyncio.FIRST_COMPLETED)
    for each in finished:
        each.result()
    for task in running:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*running)
    done.processor_seconds = time.process_time() - before
    return done
