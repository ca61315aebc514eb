"""Weights in a public format: where their files are, and the files themselves, which are fetched without a key."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, JSONResponse

from cookhouse.server.http.routes.exchange import Owner, ServiceOf

router = APIRouter()


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
