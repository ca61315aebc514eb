"""Checkpoints for others: published to every tenant of this server, and copied to another run."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse
from tinker.types.copy_weights_request import CopyWeightsRequest

from cookhouse.server.http.routes.exchange import Owner, ServiceOf, content_of
from cookhouse.server.service import Service

router = APIRouter()

_PUBLISH = "/training_runs/{model_id}/checkpoints/{kind}/{name}/publish"


@router.post(_PUBLISH)
def publish(model_id: str, kind: str, name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    return _set_public(service, f"tinker://{model_id}/{kind}/{name}", owner, is_public=True)


@router.delete(_PUBLISH)
def unpublish(model_id: str, kind: str, name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    return _set_public(service, f"tinker://{model_id}/{kind}/{name}", owner, is_public=False)


@router.post("/copy_weights")
async def copy_weights(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, CopyWeightsRequest)
    key = request.headers.get("x-idempotency-key")
    row = await service.storage.copying.copy(owner, content, idempotency_key=key)
    return JSONResponse({"tinker_path": row.path})


def _set_public(service: Service, path: str, owner: str, *, is_public: bool) -> JSONResponse:
    """Again does nothing more: the hosted service answers 409, which the SDK retries for minutes."""
    row = service.storage.checkpoints.resolve_own(path, owner)
    service.storage.store.set_checkpoint_public(row.checkpoint_id, is_public)
    return JSONResponse({})
