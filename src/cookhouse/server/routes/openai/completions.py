"""Completions of prompts."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from cookhouse.server.routes.exchange import ServiceOf
from cookhouse.server.routes.openai.exchange import Owner, content_of, stream, whole
from cookhouse.server.wire.openai import CompletionRequest

router = APIRouter()


@router.post("/completions")
async def create_completion(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, CompletionRequest)
    completion, sampling = await service.answers.completion(owner, content)
    if content.stream:
        return await stream(request, service, sampling, completion.chunks, completion.end)
    outputs = await whole(request, service, sampling)
    return JSONResponse(await service.answers.in_text_thread(lambda: completion.whole(outputs)))
