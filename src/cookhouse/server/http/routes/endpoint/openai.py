"""Chat completions, and completions of prompts."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from cookhouse.dialects.openai import ChatAnswer, ChatRequest, CompletionRequest
from cookhouse.server.http.routes.endpoint.exchange import OPENAI, Owner, content_of, stream, whole
from cookhouse.server.http.routes.exchange import ServiceOf

router = APIRouter()


@router.post("/chat/completions")
async def create_chat_completion(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, ChatRequest)
    answer, sampling = await service.requests.answers.chat(owner, content, ChatAnswer)
    if content.stream:
        return await stream(request, service, sampling, lambda _, output: answer.chunks(output), OPENAI)
    (output,) = await whole(request, service, sampling)
    return JSONResponse(await service.requests.answers.in_text_thread(owner, lambda: answer.whole(output)))


@router.post("/completions")
async def create_completion(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, CompletionRequest)
    completion, sampling = await service.requests.answers.completion(owner, content)
    if content.stream:
        return await stream(request, service, sampling, completion.chunks, OPENAI, completion.end)
    outputs = await whole(request, service, sampling)
    return JSONResponse(await service.requests.answers.in_text_thread(owner, lambda: completion.whole(outputs)))
