"""What was used: of a session, and of all sessions of a tenant."""

import asyncio
from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from cookhouse.server.http.routes.exchange import Owner, ServiceOf, check_place
from cookhouse.server.storage.store.usage import Usage

router = APIRouter()


@router.get("/sessions/{session_id}/usage")
async def session_usage(session_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    """Of one session; nothing of one that is not the tenant's."""
    await check_place(request, service, session_id)
    return JSONResponse(asdict(await asyncio.to_thread(service.requests.metering.of_session, session_id, owner)))


@router.get("/usage")
async def usage(service: ServiceOf, owner: Owner) -> JSONResponse:
    """Of all sessions of the tenant."""
    used = await asyncio.to_thread(service.requests.metering.by_owner)
    return JSONResponse(asdict(used.get(owner, Usage())))
