"""What was used: of a session for its tenant, and of all tenants for Prometheus."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import JSONResponse, Response

from cookhouse.server.routes.exchange import Owner, ServiceOf, check_place
from cookhouse.server.store.usage import Usage

router = APIRouter()
plain = APIRouter()
"""What a supervisor or Prometheus asks for, outside of the protocol and without a key."""

_ID_CHARACTERS = 8
_TOKENS = ("trained_tokens", "scored_tokens", "prompt_tokens", "sampled_tokens")
_OTHERS = "other"


@router.get("/sessions/{session_id}/usage")
async def session_usage(session_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    """Of one session; nothing of one that is not the tenant's."""
    await check_place(request, service, session_id)
    return JSONResponse(asdict(await asyncio.to_thread(service.metering.of_session, session_id, owner)))


@router.get("/usage")
async def usage(service: ServiceOf, owner: Owner) -> JSONResponse:
    """Of all sessions of the tenant."""
    used = await asyncio.to_thread(service.metering.by_owner)
    return JSONResponse(asdict(used.get(owner, Usage())))


@plain.get("/healthz")
async def healthz() -> JSONResponse:
    """Whether the process answers."""
    return JSONResponse({"status": "ok"})


@plain.get("/readyz")
async def readyz(service: ServiceOf) -> JSONResponse:
    """Whether it takes requests: the engine has its models, the database can be read, and nobody has told the server to
    end.
    """
    problem = await asyncio.to_thread(service.problem)
    if problem is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "detail": problem}, status_code=503)


@plain.get("/metrics")
async def metrics(service: ServiceOf) -> Response:
    """The figures of this server, as text. A tenant is named by the beginning of its key's digest."""
    used = await asyncio.to_thread(service.metering.by_owner)
    tenants = _by_tenant(used, service.keys.owners)
    registry = CollectorRegistry(auto_describe=False)
    collected = [*_usage(tenants), *_sessions(len(list(service.sessions)), len(service.futures))]
    if service.leases is not None:
        name, what = "cookhouse_servers", "Servers that share the sessions, this one among them."
        collected.append(GaugeMetricFamily(name, what, value=service.leases.num_living))
    registry.register(_Collected(collected))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Collected:
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


def _by_tenant(used: Mapping[str, Usage], owners: Sequence[str]) -> dict[str, Usage]:
    """By label: each key that the server accepts has one, and all that it accepts no more have one together."""
    tenants = {owner[:_ID_CHARACTERS]: used.get(owner, Usage()) for owner in owners}
    for owner, some in used.items():
        if owner not in owners:
            tenants[_OTHERS] = tenants.get(_OTHERS, Usage()) + some
    return tenants


def _usage(tenants: Mapping[str, Usage]) -> Iterator[Metric]:
    tokens = CounterMetricFamily(
        "cookhouse_tokens", "Tokens of requests that were answered.", labels=["tenant", "kind"]
    )
    seconds = CounterMetricFamily("cookhouse_engine_seconds", "Seconds of the engine.", labels=["tenant"])
    for tenant, some in tenants.items():
        for name in _TOKENS:
            tokens.add_metric([tenant, name.removesuffix("_tokens")], getattr(some, name))
        seconds.add_metric([tenant], some.engine_seconds)
    yield tokens
    yield seconds


def _sessions(num_sessions: int, num_requests: int) -> Iterator[Metric]:
    yield GaugeMetricFamily("cookhouse_sessions", "Sessions that have not ended.", value=num_sessions)
    yield GaugeMetricFamily(
        "cookhouse_requests", "Requests that wait, run, or have a result that is kept.", value=num_requests
    )
