"""Uploads of external weights, in the form that tinker 0.39 documents. What blocks runs in threads."""

import asyncio
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse
from tinker import types

from cookhouse.server.http.routes.exchange import Owner, ServiceOf, read_content
from cookhouse.server.refusals import TooLargeError
from cookhouse.server.wire import decode_lora

router = APIRouter()


class StartRequest(BaseModel):
    base_model: str
    lora_config: types.LoraConfig | None = None
    destination_project_id: str | None = Field(default=None, max_length=200)


class FinishRequest(BaseModel):
    upload_id: str


@router.post("/external_weights_upload_start")
async def start(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, StartRequest)
    info = service.requests.base_models.named(content.base_model)
    upload, routes = await asyncio.to_thread(
        service.storage.uploads.start,
        owner,
        base_model=content.base_model,
        engine_model=info.name,
        lora=decode_lora(content.lora_config, seed=0, max_rank=info.max_lora_rank),
        project_id=content.destination_project_id,
    )
    # The host that the client reached us by: what it is called from outside is not known here.
    urls = {name: f"{request.base_url}api/v1/{route}" for name, route in routes.items()}
    expires = datetime.fromtimestamp(upload.expires_at, UTC).isoformat()
    return JSONResponse({"upload_id": upload.upload_id, "urls": urls, "expires": expires})


@router.put("/external_weights_uploads/{upload_id}/{expires_at}/{signature}/{name}")
async def put(
    upload_id: str, expires_at: int, signature: str, name: str, request: Request, service: ServiceOf
) -> JSONResponse:
    target = service.storage.uploads.target(upload_id, expires_at, signature, name)
    most, num_bytes = service.settings.max_upload_bytes, 0
    part = target.with_name(f"{name}.part")
    with await asyncio.to_thread(part.open, "wb") as file:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > most:
                raise TooLargeError(f"the file has more than {most} bytes, which is the most of an upload")
            await asyncio.to_thread(file.write, chunk)
    await asyncio.to_thread(part.replace, target)
    return JSONResponse({})


@router.post("/external_weights_upload_finish")
async def finish(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, FinishRequest)
    row = await asyncio.to_thread(service.storage.uploads.finish, owner, content.upload_id)
    return JSONResponse({"tinker_path": row.path})
