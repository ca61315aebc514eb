"""Operation of a server: its status and its workers; and, outside of the protocol and without a key, its health."""

import asyncio
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from cookhouse.server.http.routes.exchange import Operator, Owner, ServiceOf, parts_elsewhere, read_content
from cookhouse.server.pool.plans import Kind
from cookhouse.server.status import Metrics, ServerStatus
from cookhouse.version import __version__

router = APIRouter()
plain = APIRouter()
"""For a supervisor, or Prometheus."""


async def _status(request: Request) -> ServerStatus:
    status: ServerStatus = request.app.state.status
    return status


Status = Annotated[ServerStatus, Depends(_status)]
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@router.get("/status")
async def status(request: Request, service: ServiceOf, asked: Status, owner: Owner) -> Response:
    """Status that its tenant may see: of the first key everything, of any other its own things, and sums. Sessions,
    models and tenants are those of all servers.
    """
    answer = await asked.of(owner, partial(parts_elsewhere, request, service, "/status"))
    return Response(answer, media_type="application/json", headers=_HEADERS)


@router.get("/own/status")
async def own_status(asked: Status, owner: Owner) -> Response:
    """The same of this server alone."""
    return Response(await asked.of(owner), media_type="application/json", headers=_HEADERS)


class AddRequest(BaseModel):
    kind: Kind | None = None


class DrainRequest(BaseModel):
    seconds: float = Field(default=60.0, ge=0, allow_inf_nan=False)
    """To let running samples finish."""


@router.post("/workers")
async def add(request: Request, service: ServiceOf, operator: Operator) -> JSONResponse:
    """Answered while the worker starts."""
    content, _ = await read_content(request, service, operator, AddRequest)
    plan = service.requests.workers.add(content.kind)
    return JSONResponse({"name": plan.name, "trains": plan.trains, "samples": plan.samples})


@router.post("/workers/{name}/drain")
async def drain(name: str, request: Request, service: ServiceOf, operator: Operator) -> JSONResponse:
    """Answered once the worker gets no new work; the status has it until it has stopped."""
    content, _ = await read_content(request, service, operator, DrainRequest)
    num_models = service.requests.workers.drain(name, content.seconds)
    return JSONResponse({"name": name, "num_models": num_models, "seconds": content.seconds})


@plain.get("/healthz")
async def healthz(service: ServiceOf) -> JSONResponse:
    """Answer that the process is up, with its id where servers share sessions; the id opens nothing."""
    which = {} if service.leases is None else {"server_id": service.leases.server_id}
    return JSONResponse({"status": "ok", **which})


@plain.get("/health")
async def health() -> Response:
    """As vLLM has it: 200, and nothing else."""
    return Response()


@plain.get("/version")
async def version() -> JSONResponse:
    return JSONResponse({"version": __version__})


@plain.head("/")
async def exists() -> Response:
    """Answer clients that look for a server at its address before they ask it."""
    return Response()


@plain.get("/")
async def root() -> JSONResponse:
    """Name this server, and the paths that it serves."""
    return JSONResponse({"name": "cookhouse", "version": __version__, "paths": ["/api/v1", "/v1", "/page/"]})


@plain.get("/readyz")
async def readyz(service: ServiceOf) -> JSONResponse:
    """Answer 200 if it takes requests: the engine has its models, the database can be read, and it is not stopping."""
    problem = await asyncio.to_thread(service.problem)
    if problem is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "detail": problem}, status_code=503)


@plain.get("/metrics")
async def metrics(request: Request) -> Response:
    """The figures of this server, as text."""
    asked: Metrics = request.app.state.metrics
    return Response(await asked.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
