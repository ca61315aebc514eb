"""The models that can be asked for by name."""

import asyncio

from fastapi import APIRouter
from starlette.responses import JSONResponse

from cookhouse.server.routes.exchange import ServiceOf
from cookhouse.server.routes.openai.exchange import Owner

router = APIRouter()


@router.get("/models")
async def list_models(service: ServiceOf, owner: Owner) -> JSONResponse:
    models = await asyncio.to_thread(service.answers.weights.listed, owner)
    return JSONResponse({"object": "list", "data": [_model(name, created_at) for name, created_at in models.items()]})


@router.get("/models/{name:path}")
async def get_model(name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    return JSONResponse(_model(*await asyncio.to_thread(service.answers.weights.described, name, owner)))


def _model(name: str, created_at: float) -> dict[str, str | int]:
    return {"id": name, "object": "model", "created": int(created_at), "owned_by": "cookhouse"}
