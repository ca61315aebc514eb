"""vLLM's routes of tokens, which stand at the root."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from cookhouse.dialects.vllm import DetokenizeRequest, GenerateRequest, TokenizeRequest
from cookhouse.server.http.routes.endpoint.exchange import OPENAI, Owner, content_of, stream, whole
from cookhouse.server.http.routes.exchange import ServiceOf

router = APIRouter()


@router.post("/inference/v1/generate")
async def generate(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, GenerateRequest)
    generation, sampling = await service.requests.answers.generation(owner, content)
    if content.stream:
        return await stream(request, service, sampling, lambda _, output: generation.chunks(output), OPENAI)
    (output,) = await whole(request, service, sampling)
    return JSONResponse(await service.requests.answers.in_text_thread(owner, lambda: generation.whole(output)))


@router.post("/tokenize")
async def tokenize(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, TokenizeRequest)
    tokenized = await service.requests.answers.tokens(owner, content)
    counted = {"count": len(tokenized.tokens), "max_model_len": tokenized.max_context_tokens}
    return JSONResponse({**counted, "tokens": tokenized.tokens, "token_strs": tokenized.strings})


@router.post("/detokenize")
async def detokenize(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, DetokenizeRequest)
    return JSONResponse({"prompt": await service.requests.answers.text(owner, content)})
