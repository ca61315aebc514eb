"""Start-up and sessions: flags, capabilities, heartbeats, telemetry."""

import ipaddress
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse
from tinker import types

from cookhouse.engine.contract import PAIR_LOSSES
from cookhouse.server.http.routes.exchange import HotRoutes, Owner, ServiceOf, content_of
from cookhouse.server.service import Service

router = APIRouter()
hot = HotRoutes()

_MAX_DETAIL_CHARACTERS = 2000


class FinishReason(BaseModel):
    type: Literal["success", "errored", "interrupted"]


class FinishRequest(BaseModel):
    reason: FinishReason
    detail: str | None = None


@router.get("/healthz")
async def healthz() -> JSONResponse:
    return JSONResponse({"status": "ok"})


@router.post("/client/config")
async def client_config(request: Request, service: ServiceOf, _owner: Owner) -> JSONResponse:
    """The flags that turn on what this server supports; the SDK's defaults hold for the rest."""
    settings = service.settings
    return JSONResponse(
        {
            "fwdbwd_max_chunk_len": settings.fwdbwd_max_chunk_len,
            "fwdbwd_max_chunk_bytes_count": settings.fwdbwd_max_chunk_bytes,
            "proto_compress_fwdbwd": settings.compress_remote_bodies and not _is_loopback(request),
            "sample_use_retrieve_futures": settings.use_retrieve_futures,
        },
        # The SDK asks over a connection that it never uses again, nor closes.
        headers={"Connection": "close"},
    )


@router.post("/client/dynamic_config")
async def client_dynamic_config(_owner: Owner) -> JSONResponse:
    return JSONResponse({"sample_cancel_enabled": True})


@router.get("/get_server_capabilities")
async def capabilities(service: ServiceOf, _owner: Owner) -> JSONResponse:
    supported = [
        {
            "model_name": name,
            "max_context_length": service.requests.base_models.named(name).max_context_tokens,
            "trainable": True,
            "sampleable": True,
        }
        for name in service.requests.base_models.names
    ]
    # What the SDK does not know of it leaves out: a client that asks for it knows what to do with it.
    return JSONResponse(
        {
            "supported_models": supported,
            "pair_losses": PAIR_LOSSES,
            "pair_token_logprobs": True,
            "fwdbwd_max_chunk_len": service.settings.fwdbwd_max_chunk_len,
            "fwdbwd_max_chunk_bytes_count": service.settings.fwdbwd_max_chunk_bytes,
        }
    )


@router.post("/create_session")
async def create_session(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, types.CreateSessionRequest)
    session = await service.lifecycle.begin(
        owner,
        idempotency_key=request.headers.get("x-idempotency-key"),
        display_name=content.display_name,
        user_metadata=content.user_metadata,
        project_id=content.project_id,
    )
    return JSONResponse({"type": "create_session", "session_id": session.session_id})


@hot.post("/session_heartbeat")
async def session_heartbeat(request: Request, service: Service, owner: str) -> JSONResponse:
    content = await content_of(request, types.SessionHeartbeatRequest)
    service.sessions.session(content.session_id, owner)
    return JSONResponse({"type": "session_heartbeat"})


@router.post("/sessions/{session_id}/finish")
async def finish_session(session_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, FinishRequest)
    detail = None if content.detail is None else content.detail[:_MAX_DETAIL_CHARACTERS]
    await service.lifecycle.finish(session_id, owner, reason=content.reason.type, detail=detail)
    return JSONResponse({})


@router.post("/telemetry")
async def telemetry(_owner: Owner) -> JSONResponse:
    """Taken and forgotten: events may hold the API key. The SDK delays its exceptions until this is answered."""
    return JSONResponse({"status": "accepted"})


def _is_loopback(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
