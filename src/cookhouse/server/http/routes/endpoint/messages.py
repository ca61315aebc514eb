"""Anthropic's messages."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from cookhouse.dialects.anthropic import CountRequest, MessagesAnswer, MessagesRequest
from cookhouse.server.http.routes.endpoint.exchange import ANTHROPIC, Owner, content_of, stream, whole
from cookhouse.server.http.routes.exchange import ServiceOf

router = APIRouter()


@router.post("/messages")
async def create_message(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, MessagesRequest)
    answer, sampling = await service.requests.answers.chat(owner, content.chat(), MessagesAnswer)
    if content.stream:
        return await stream(request, service, sampling, lambda _, output: answer.chunks(output), ANTHROPIC)
    (output,) = await whole(request, service, sampling)
    return JSONResponse(await service.requests.answers.in_text_thread(owner, lambda: answer.whole(output)))


@router.post("/messages/count_tokens")
async def count_tokens(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, CountRequest)
    return JSONResponse({"input_tokens": await service.requests.answers.count(owner, content.chat())})
