"""Chat completions, completions of prompts, and the models that can be asked for by name."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from cookhouse.dialects.openai import ChatRequest, CompletionRequest
from cookhouse.server.http.routes.exchange import ServiceOf
from cookhouse.server.http.routes.openai.exchange import Owner, content_of, stream, whole

router = APIRouter()


@router.post("/chat/completions")
async def create_chat_completion(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, ChatRequest)
    answer, sampling = await service.requests.answers.chat(owner, content)
    if content.stream:
        return await stream(request, service, sampling, lambda _, output: answer.chunks(output))
    (output,) = await whole(request, service, sampling)
    return JSONResponse(await service.requests.answers.in_text_thread(owner, lambda: answer.whole(output)))


@router.post("/completions")
async def create_completion(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, CompletionRequest)
    completion, sampling = await service.requests.answers.completion(owner, content)
    if content.stream:
        return await stream(request, service, sampling, completion.chunks, completion.end)
    outputs = await whole(request, service, sampling)
    return JSONResponse(await service.requests.answers.in_text_thread(owner, lambda: completion.whole(outputs)))


@router.get("/models")
async def list_models(service: ServiceOf, owner: Owner) -> JSONResponse:
    models = await asyncio.to_thread(service.requests.answers.weights.listed, owner)
    return JSONResponse({"object": "list", "data": [_model(name, created_at) for name, created_at in models.items()]})


@router.get("/models/{name:path}")
async def get_model(name: str, service: ServiceOf, owner: Owner) -> JSONResponse:
    return JSONResponse(_model(*await asyncio.to_thread(service.requests.answers.weights.described, name, owner)))


def _model(name: str, created_at: float) -> dict[str, str | int]:
    return {"id": name, "object": "model", "created": int(created_at), "owned_by": "cookhouse"}
