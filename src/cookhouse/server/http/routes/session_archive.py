"""What is known of sessions, those that have ended too: listed, searched, labeled, and traced."""

import asyncio
from collections.abc import Collection
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response
from tinker.types.session_search_request import SessionSearchRequest

from cookhouse.errors import InputError
from cookhouse.server.http.routes.exchange import Limit, Offset, Owner, ServiceOf, check_place, content_of, iso, texts
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.service import Service
from cookhouse.server.sessions.search import OWNER, search, status_type
from cookhouse.server.storage.store.rows import SessionRow

router = APIRouter()


class ProjectRequest(BaseModel):
    project_id: str = Field(min_length=1, max_length=200)


@router.get("/sessions")
def list_sessions(service: ServiceOf, owner: Owner, limit: Limit = 20, offset: Offset = 0) -> JSONResponse:
    rows = service.storage.store.sessions(owner, limit=limit, offset=offset)
    return JSONResponse({"sessions": [row.session_id for row in rows]})


@router.post("/sessions/search")
async def search_sessions(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, SessionSearchRequest)
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
    content = await content_of(request, ProjectRequest)
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
