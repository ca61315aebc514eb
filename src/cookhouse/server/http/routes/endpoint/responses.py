"""Responses, whole and streamed, and those that are kept."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from cookhouse.dialects.openai import ResponsesAnswer, ResponsesRequest
from cookhouse.engine.contract import SampleOutput
from cookhouse.server.http.routes.endpoint.exchange import Owner, StreamForm, content_of, stream, whole
from cookhouse.server.http.routes.exchange import ServiceOf

router = APIRouter()


@router.post("/responses")
async def create_response(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content = await content_of(request, service, owner, ResponsesRequest)
    answers = service.requests.answers
    turns = [*answers.responses.turns(owner, content.previous_response_id), *content.turns()]
    answer, sampling = await answers.chat(owner, content.chat(turns), partial(ResponsesAnswer, content))

    def keep(response: dict[str, Any]) -> dict[str, Any]:
        if content.store is not False:
            answers.responses.keep(owner, [*turns, answer.message], response)
        return response

    def chunks(_: int, output: SampleOutput) -> list[dict[str, Any]]:
        events = answer.chunks(output)
        if not output.is_partial:
            keep(events[-1]["response"])
        return events

    if content.stream:
        return await stream(request, service, sampling, chunks, StreamForm(are_named=True, failed=answer.failed))
    (output,) = await whole(request, service, sampling)
    return JSONResponse(keep(await answers.in_text_thread(owner, lambda: answer.whole(output))))


@router.get("/responses/{response_id}")
async def get_response(response_id: str, service: ServiceOf, owner: Owner) -> Response:
    return JSONResponse(service.requests.answers.responses.response(owner, response_id))


@router.delete("/responses/{response_id}")
async def delete_response(response_id: str, service: ServiceOf, owner: Owner) -> Response:
    service.requests.answers.responses.delete(owner, response_id)
    return JSONResponse({"id": response_id, "object": "response", "deleted": True})
