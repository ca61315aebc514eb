"""Chat completions."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from cookhouse.server.routes.exchange import ServiceOf
from cookhouse.server.routes.openai.exchange import Owner, content_of, stream, whole
from cookhouse.server.wire.openai import ChatRequest

router = APIRouter()


@router.post("/chat/completions")
async def create_chat_completion(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, ChatRequest)
    answer, sampling = await service.answers.chat(owner, content)
    if content.stream:
        return await stream(request, service, sampling, lambda _, output: answer.chunks(output))
    (output,) = await whole(request, service, sampling)
    return JSONResponse(await service.answers.in_text_thread(lambda: answer.whole(output)))
