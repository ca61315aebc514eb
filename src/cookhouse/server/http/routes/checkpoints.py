"""Training runs and checkpoints: listed, deleted, shared, copied, and downloaded. What blocks runs in threads."""

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import FileResponse, JSONResponse, RedirectResponse
from tinker.types.copy_weights_request import CopyWeightsRequest

from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.registry import sha256_of_digests
from cookhouse.server.access.hosted_rules import BARE_CHECKPOINT_ID
from cookhouse.server.http.routes.exchange import Limit, Offset, Owner, ServiceOf, iso, read_content, texts
from cookhouse.server.refusals import ForeignError, NotFoundError
from cookhouse.server.service import Service
from cookhouse.server.sessions.checkpoint_search import TYPES, CheckpointSearchRequest, search_checkpoints
from cookhouse.server.sessions.sdk_versions import knows_external_weights
from cookhouse.server.sessions.search import OWNER
from cookhouse.server.storage.checkpoints.checkpoint import check_ttl
from cookhouse.server.storage.store.rows import CheckpointKind, CheckpointRow, RunRow

router = APIRouter()

_PUBLISH = "/training_runs/{model_id}/checkpoints/{kind}/{name}/publish"


class TtlRequest(BaseModel):
    ttl_seconds: int | None = None


class WeightsInfoRequest(BaseModel):
    tinker_path: str


@router.get("/training_runs")
def list_training_runs(service: ServiceOf, owner: Owner, limit: Limit = 20, offset: Offset = 0) -> JSONResponse:
    rows, total = service.storage.store.runs(owner, limit=limit, offset=offset)
    return JSONResponse(
        {"training_runs": [_run(service, row) for row in rows], "cursor": _cursor(limit, offset, total)}
    )


@router.get("/training_runs/{model_id}")
def get_training_run(model_id: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    return JSONResponse(_run(service, _known_run(service, model_id, owner)))


@router.get("/training_runs/{model_id}/checkpoints")
def list_run_checkpoints(model_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    _known_run(service, model_id, owner)
    rows, _ = service.storage.store.checkpoints(owner, model_id=model_id, kinds=_readable(request))
    return JSONResponse({"checkpoints": [_checkpoint(row) for row in rows]})


@router.delete("/training_runs/{model_id}/checkpoints/{kind}/{name}")
def delete_checkpoint(model_id: str, kind: str, name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    service.storage.checkpoints.delete(
        service.storage.checkpoints.resolve_own(f"tinker://{model_id}/{kind}/{name}", owner)
    )
    return JSONResponse({})


@router.delete("/training_runs/{model_id}/checkpoints/{name}")
async def delete_named_checkpoint(model_id: str, name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    """By a name alone, where that is the name of one."""
    service.rules.enforce(model_id.partition(":")[0], [BARE_CHECKPOINT_ID.broken(name=name)])
    await asyncio.to_thread(_delete_named, service, model_id, name, owner)
    return JSONResponse({})


@router.put("/training_runs/{model_id}/checkpoints/{kind}/{name}/ttl")
async def set_checkpoint_ttl(
    model_id: str, kind: str, name: str, request: Request, service: ServiceOf, owner: Owner
) -> JSONResponse:
    content, _ = await read_content(request, service, owner, TtlRequest)
    check_ttl(content.ttl_seconds)
    row = await asyncio.to_thread(service.storage.checkpoints.resolve_own, f"tinker://{model_id}/{kind}/{name}", owner)
    expires_at = None if content.ttl_seconds is None else service.storage.store.clock.end_of(content.ttl_seconds)
    await asyncio.to_thread(service.storage.store.set_checkpoint_expiry, row.checkpoint_id, expires_at)
    return JSONResponse({})


@router.get("/checkpoints")
def list_checkpoints(
    request: Request, service: ServiceOf, owner: Owner, limit: Limit = 100, offset: Offset = 0
) -> JSONResponse:
    rows, total = service.storage.store.checkpoints(owner, kinds=_readable(request), limit=limit, offset=offset)
    return JSONResponse({"checkpoints": [_checkpoint(row) for row in rows], "cursor": _cursor(limit, offset, total)})


@router.post("/checkpoints/search")
async def search(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, CheckpointSearchRequest)
    return JSONResponse(await asyncio.to_thread(_search, service, owner, content))


@router.post("/weights_info")
async def weights_info(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, WeightsInfoRequest)
    kept = await asyncio.to_thread(service.storage.checkpoints.find, content.tinker_path, owner)
    row = kept.row
    lora = row.lora_spec
    return JSONResponse(
        {
            "base_model": row.base_model,
            "is_lora": lora.rank > 0,
            "lora_rank": lora.rank or None,
            "train_unembed": lora.train_unembed,
            "train_mlp": lora.train_mlp,
            "train_attn": lora.train_attn,
            # What the SDK does not know of it leaves out.
            "sha256": None if row.sha256 is None else sha256_of_digests(row.sha256),
        }
    )


@router.post(_PUBLISH)
def publish(model_id: str, kind: str, name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    return _set_public(service, f"tinker://{model_id}/{kind}/{name}", owner, is_public=True)


@router.delete(_PUBLISH)
def unpublish(model_id: str, kind: str, name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    return _set_public(service, f"tinker://{model_id}/{kind}/{name}", owner, is_public=False)


@router.post("/copy_weights")
async def copy_weights(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, CopyWeightsRequest)
    key = request.headers.get("x-idempotency-key")
    row = await service.storage.copying.copy(owner, content, idempotency_key=key)
    return JSONResponse({"tinker_path": row.path})


@router.get("/training_runs/{model_id}/checkpoints/{kind}/{name}/external_weights_urls")
def list_urls(model_id: str, kind: str, name: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    row = service.storage.checkpoints.resolve(f"tinker://{model_id}/{kind}/{name}", owner)
    links = service.storage.external_weights.links(row)
    # The host that the client reached us by: what it is called from outside is not known here.
    urls = {name: f"{request.base_url}api/v1/{route}" for name, route in links.routes.items()}
    return JSONResponse({"urls": urls, "expires": datetime.fromtimestamp(links.expires_at, UTC).isoformat()})


@router.get("/external_weights/{checkpoint_id}/{expires_at}/{signature}/{name}")
def download(checkpoint_id: str, expires_at: int, signature: str, name: str, service: ServiceOf) -> FileResponse:
    file = service.storage.external_weights.follow(checkpoint_id, expires_at, signature, name)
    return FileResponse(file, media_type="application/octet-stream", filename=name)


@router.get("/training_runs/{model_id}/checkpoints/{kind}/{name}/archive")
def archive(
    model_id: str, kind: str, name: str, request: Request, service: ServiceOf, owner: Owner
) -> RedirectResponse:
    """Of SDKs before 0.36, which read where it leads, and until when."""
    link = service.storage.archives.link(f"tinker://{model_id}/{kind}/{name}", owner)
    headers = {"Expires": formatdate(link.expires_at, usegmt=True)}
    return RedirectResponse(f"{request.base_url}api/v1/{link.route}", status_code=302, headers=headers)


@router.get("/checkpoint_archives/{checkpoint_id}/{expires_at}/{signature}")
def download_archive(checkpoint_id: str, expires_at: int, signature: str, service: ServiceOf) -> FileResponse:
    file = service.storage.archives.follow(checkpoint_id, expires_at, signature)
    return FileResponse(file, media_type="application/gzip", filename="checkpoint.tar.gz")


def _search(service: Service, owner: str, request: CheckpointSearchRequest) -> dict[str, Any]:
    sessions = () if request.project_ids is None else service.storage.store.sessions(owner, limit=None, offset=0)
    projects = {row.session_id: row.project_id for row in sessions if row.project_id is not None}
    rows, cursor = search_checkpoints(service.storage.store.checkpoints(owner)[0], projects, request)
    return {
        "checkpoints": [_checkpoint(row) for row in rows],
        "next_cursor": None if cursor is None else cursor.model_dump(mode="json"),
    }


def _readable(request: Request) -> Collection[CheckpointKind] | None:
    """Kinds of checkpoints that the client's SDK can read in a list; None: all."""
    is_new = knows_external_weights(request.headers.get("x-stainless-package-version", ""))
    return None if is_new else ("weights", "sampler_weights")


def _known_run(service: Service, model_id: str, owner: str) -> RunRow:
    row = service.storage.store.run(model_id, owner)
    if row is None:
        kind = ForeignError if service.storage.store.has_run(model_id) else NotFoundError
        raise kind(f"unknown training run {model_id!r}; list yours with RestClient.list_training_runs()")
    return row


def _delete_named(service: Service, model_id: str, name: str, owner: str) -> None:
    _known_run(service, model_id, owner)
    rows = [row for row in service.storage.store.checkpoints(owner, model_id=model_id)[0] if row.name == name]
    if not rows:
        raise NotFoundError(f"no checkpoint {name!r} in {model_id}; list what there is")
    if len(rows) > 1:
        raise InputError(f"{listed([row.path for row in rows])} have this name; give weights/{name} or another of them")
    service.storage.checkpoints.delete(rows[0])


def _run(service: Service, row: RunRow) -> dict[str, Any]:
    checkpoints, _ = service.storage.store.checkpoints(row.owner, model_id=row.model_id)
    newest = {kind: next((one for one in checkpoints if one.kind == kind), None) for kind in TYPES}
    weights, sampler_weights = newest["weights"], newest["sampler_weights"]
    return {
        "training_run_id": row.model_id,
        "base_model": row.base_model,
        "model_owner": OWNER,
        "is_lora": row.lora["rank"] > 0,
        "lora_rank": row.lora["rank"] or None,
        "corrupted": False,
        "last_request_time": iso(service.requests.intake.heard_at(row.model_id) or row.last_request_at),
        "last_checkpoint": None if weights is None else _checkpoint(weights),
        "last_sampler_checkpoint": None if sampler_weights is None else _checkpoint(sampler_weights),
        "user_metadata": texts(row.user_metadata),
    }


def _checkpoint(row: CheckpointRow) -> dict[str, Any]:
    return {
        "checkpoint_id": f"{row.kind}/{row.name}",
        "checkpoint_type": TYPES[row.kind],
        "time": iso(row.created_at),
        "tinker_path": row.path,
        "base_model": row.base_model,
        "size_bytes": row.size_bytes,
        "public": row.is_public,
        "user_metadata": texts(row.user_metadata),
        "expires_at": None if row.expires_at is None else iso(row.expires_at),
    }


def _cursor(limit: int, offset: int, total: int) -> dict[str, int]:
    return {"offset": offset, "limit": limit, "total_count": total}


def _set_public(service: Service, path: str, owner: str, *, is_public: bool) -> JSONResponse:
    """Again does nothing more: the hosted service answers 409, which the SDK retries for minutes."""
    row = service.storage.checkpoints.resolve_own(path, owner)
    service.storage.store.set_checkpoint_public(row.checkpoint_id, is_public)
    return JSONResponse({})
