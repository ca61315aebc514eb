"""What a supervisor or Prometheus asks for, outside of the protocol and without a key."""

import asyncio

from fastapi import APIRouter, Request
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import JSONResponse, Response

from cookhouse.server.http.routes.exchange import ServiceOf
from cookhouse.server.status import Metrics

router = APIRouter()


@router.get("/healthz")
async def healthz(service: ServiceOf) -> JSONResponse:
    """Whether the process answers, and, where servers share sessions, which of them it is: an id that opens nothing."""
    which = {} if service.leases is None else {"server_id": service.leases.server_id}
    return JSONResponse({"status": "ok", **which})


@router.get("/readyz")
async def readyz(service: ServiceOf) -> JSONResponse:
    """Whether it takes requests: the engine has its models, the database can be read, and nobody has told the server to
    end.
    """
    problem = await asyncio.to_thread(service.problem)
    if problem is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "detail": problem}, status_code=503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """The figures of this server, as text."""
    asked: Metrics = request.app.state.metrics
    return Response(await asked.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
