"""The models that can be asked for by name."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse

from cookhouse.server.http.routes.endpoint.exchange import Owner
from cookhouse.server.http.routes.exchange import ServiceOf
from cookhouse.server.requests.completions.weights import ListedModel

router = APIRouter()


@router.api_route("/", methods=["GET", "HEAD"])
async def base() -> JSONResponse:
    """Answer clients that look for a server at its address before they ask it."""
    return JSONResponse({"name": "cookhouse"})


@router.get("/models")
async def list_models(service: ServiceOf, owner: Owner) -> JSONResponse:
    models = await asyncio.to_thread(service.requests.answers.weights.listed, owner)
    data = [_model(model) for model in models]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
    return JSONResponse({"object": "list", "data": data, "has_more": False, **ends})


@router.get("/models/{name:path}")
async def get_model(name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    return JSONResponse(_model(await asyncio.to_thread(service.requests.answers.weights.described, name, owner)))


def _model(model: ListedModel) -> dict[str, Any]:
    """In the forms of OpenAI's clients, with vLLM's `max_model_len`, and of Anthropic's at once."""
    return {
        "id": model.name,
        "object": "model",
        "created": int(model.created_at),
        "owned_by": "cookhouse",
        "max_model_len": model.max_context_tokens,
        "type": "model",
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(int(model.created_at), UTC).isoformat(),
    }
