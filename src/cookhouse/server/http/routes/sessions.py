"""Sessions, from the flags that a client starts with to what is known of those that have ended; and their usage."""

import asyncio
import ipaddress
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response
from tinker import types
from tinker.types.session_search_request import SessionSearchRequest

from cookhouse.engine.contract import PAIR_LOSSES
from cookhouse.errors import InputError
from cookhouse.server.access.hosted_rules import sdk_breaches
from cookhouse.server.http.routes.exchange import (
    HotRoutes,
    Limit,
    Offset,
    Owner,
    ServiceOf,
    check_place,
    iso,
    parts_elsewhere,
    read_content,
    texts,
)
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.service import Service
from cookhouse.server.sessions.sdk_versions import check_version
from cookhouse.server.sessions.search import OWNER, search, status_type
from cookhouse.server.storage.store.rows import SessionRow
from cookhouse.server.storage.store.usage import Usage

router = APIRouter()
hot = HotRoutes()

_MAX_DETAIL_CHARACTERS = 2000
_MAX_VERSION_CHARACTERS = 100


class FinishReason(BaseModel):
    type: Literal["success", "errored", "interrupted"]


class FinishRequest(BaseModel):
    reason: FinishReason
    detail: str | None = None


class ProjectRequest(BaseModel):
    project_id: str = Field(min_length=1, max_length=200)


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
            # Read by 0.19 to 0.36 alone, which then do as later ones: protobuf, and one request to start from weights.
            "proto_write_fwdbwd": True,
            "fwd_via_fwdbwd": True,
            "create_model_via_load_weights": True,
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
        if not (service.rules.is_strict and service.requests.base_models.breaches(name))
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
    content, _ = await read_content(request, service, owner, types.CreateSessionRequest)
    check_version(content.sdk_version)
    breaches = sdk_breaches(content.sdk_version)
    for breach in breaches:
        service.rules.refuse(breach)
    session = await service.lifecycle.begin(
        owner,
        idempotency_key=request.headers.get("x-idempotency-key"),
        display_name=content.display_name,
        user_metadata=content.user_metadata,
        project_id=content.project_id,
        sdk_version=content.sdk_version[:_MAX_VERSION_CHARACTERS],
    )
    for breach in breaches:
        service.rules.note(session.session_id, breach)
    return JSONResponse({"type": "create_session", "session_id": session.session_id})


@hot.post("/session_heartbeat")
async def session_heartbeat(request: Request, service: Service, owner: str) -> JSONResponse:
    content, _ = await read_content(request, service, owner, types.SessionHeartbeatRequest)
    service.sessions.session(content.session_id, owner)
    return JSONResponse({"type": "session_heartbeat"})


@router.post("/sessions/{session_id}/finish")
async def finish_session(session_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, FinishRequest)
    detail = None if content.detail is None else content.detail[:_MAX_DETAIL_CHARACTERS]
    await service.lifecycle.finish(session_id, owner, reason=content.reason.type, detail=detail)
    return JSONResponse({})


@router.post("/telemetry")
async def telemetry(_owner: Owner) -> JSONResponse:
    """Taken and forgotten: events may hold the API key. The SDK delays its exceptions until this is answered."""
    return JSONResponse({"status": "accepted"})


@router.get("/sessions")
def list_sessions(service: ServiceOf, owner: Owner, limit: Limit = 20, offset: Offset = 0) -> JSONResponse:
    rows = service.storage.store.sessions(owner, limit=limit, offset=offset)
    return JSONResponse({"sessions": [row.session_id for row in rows]})


@router.post("/sessions/search")
async def search_sessions(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, SessionSearchRequest)
    live = await service.live_sessions()
    return JSONResponse(await asyncio.to_thread(_search, service, owner, content, live))


@router.get("/sessions/{session_id}")
def get_session(session_id: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    row = _known_session(service, session_id, owner)
    return JSONResponse(
        {
            "training_run_ids": [run.model_id for run in service.storage.store.session_runs(session_id, owner)],
            "sampler_ids": [
                sampler.sampler_id for sampler in service.storage.store.session_samplers(session_id, owner)
            ],
            "user_metadata": texts(row.user_metadata),
            "display_name": row.display_name,
        }
    )


@router.put("/sessions/{session_id}/project")
async def assign_project(session_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, ProjectRequest)
    await asyncio.to_thread(_known_session, service, session_id, owner)
    await asyncio.to_thread(service.storage.store.set_session_project, session_id, content.project_id)
    return JSONResponse({})


@router.get("/sessions/{session_id}/trace_export")
async def export_trace(session_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    await asyncio.to_thread(_known_session, service, session_id, owner)
    await check_place(request, service, session_id)
    try:
        route = service.traces.link(session_id)
    except InputError as error:
        return JSONResponse({"status": "failed", "error": str(error)})
    # The host that the client reached us by: what it is called from outside is not known here.
    return JSONResponse({"status": "ready", "url": f"{request.base_url}api/v1/{route}"})


@router.get("/session_traces/{session_id}/{expires_at}/{signature}")
async def download_trace(
    session_id: str, expires_at: int, signature: str, request: Request, service: ServiceOf
) -> Response:
    service.traces.check(session_id, expires_at, signature)  # before the database is asked whose it is
    await check_place(request, service, session_id)
    return Response(service.traces.follow(session_id, expires_at, signature), media_type="application/json")


@router.get("/sessions/{session_id}/usage")
async def session_usage(session_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    """Of one session; nothing of one that is not the tenant's."""
    await check_place(request, service, session_id)
    return JSONResponse(asdict(await asyncio.to_thread(service.requests.metering.of_session, session_id, owner)))


@router.get("/usage")
async def usage(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    """Of all sessions of the tenant, whichever server holds them."""
    used = await asyncio.to_thread(service.requests.metering.by_owner)
    # After the store: what is written meanwhile is missed once, and never counted twice.
    parts = await parts_elsewhere(request, service, "/usage")
    return JSONResponse(asdict(sum(map(Usage.of, parts.values()), used.get(owner, Usage()))))


@router.get("/own/usage")
async def own_usage(service: ServiceOf, owner: Owner) -> JSONResponse:
    """Usage of the tenant that this server has counted, and not written down."""
    return JSONResponse(asdict(service.requests.metering.unwritten(owner)))


def _known_session(service: Service, session_id: str, owner: str) -> SessionRow:
    row = service.storage.store.session(session_id, owner)
    if row is None:
        raise NotFoundError(f"unknown session {session_id!r}; list yours with RestClient.list_sessions()")
    return row


def _search(service: Service, owner: str, request: SessionSearchRequest, live: Collection[str]) -> dict[str, Any]:
    rows, cursor = search(service.storage.store.sessions(owner, limit=None, offset=0), live, request)
    return {
        "sessions": [_summary(service, row, live) for row in rows],
        "next_cursor": None if cursor is None else cursor.model_dump(mode="json"),
    }


def _summary(service: Service, row: SessionRow, live: Collection[str]) -> dict[str, Any]:
    count, num_bytes = service.storage.store.session_storage(row.session_id, row.owner)
    kind = status_type(row, live)
    status: dict[str, Any] | None = None if kind is None else {"type": kind}
    if status is not None and kind == "client_finished":
        status |= {"reason": {"type": row.finish_reason}, "detail": row.finish_detail}
    return {
        "session_id": row.session_id,
        "created_at": iso(row.created_at),
        "owner": OWNER,
        "project_id": row.project_id or OWNER,
        "status": status,
        "checkpoints_count": count,
        "checkpoint_storage_bytes": num_bytes,
        "display_name": row.display_name,
        "user_metadata": texts(row.user_metadata),
    }


def _is_loopback(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
