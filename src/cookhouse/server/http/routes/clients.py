"""Requests of training and sampling clients, and the results of those that are answered later."""

import asyncio
from functools import partial

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response
from tinker import types
from tinker.types.future_retrieve_request import FutureRetrieveRequest
from tinker.types.futures_retrieve_request import FuturesRetrieveRequest

from cookhouse.errors import ServiceError
from cookhouse.server.access.bodies import Body
from cookhouse.server.http.routes.exchange import (
    HotRoutes,
    Owner,
    ServiceOf,
    check_place,
    json_training_body,
    read_content,
    training_body,
)
from cookhouse.server.requests.intake import Arrived
from cookhouse.server.sequencer.futures import JSON, PROTOBUF, Future, Result
from cookhouse.server.service import Service
from cookhouse.server.sessions.sdk_versions import check_session_id
from cookhouse.server.wire import result_to_json

router = APIRouter()
hot = HotRoutes()

_INLINE_BYTES = 16 * 2**10
"""Of a result that is written as JSON."""
_PAUSED = {
    "queue_state": "paused_rate_limit",
    "queue_state_reason": "concurrent sampler weights limit hit",
}
"""The words of the hosted service."""


class CancelRequest(BaseModel):
    request_id: str


class NewModelRequest(types.CreateModelRequest):
    session_id: str = ""
    model_seq_id: int = 0
    base_model: str = ""
    """Empty where it is missing, which is refused by name."""


@router.post("/create_model")
async def create_model(request: Request, service: ServiceOf, owner: Owner) -> Response:
    content, body = await read_content(request, service, owner, NewModelRequest)
    check_session_id(content.session_id)
    return await _future(request, service, owner, "create_model", content, body)


@router.post("/load_weights")
async def load_weights(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await _accepted(request, service, owner, "load_weights", types.LoadWeightsRequest)


@router.post("/get_info")
async def get_info(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, types.GetInfoRequest)
    model = service.sessions.model(content.model_id, owner)
    info = service.requests.base_models.named(model.base_model)
    return JSONResponse(
        {
            "type": "get_info",
            "model_id": model.model_id,
            "model_name": model.base_model,
            "model_data": {
                "arch": info.architecture,
                "model_name": model.base_model,
                "tokenizer_id": info.tokenizer_id,
            },
            "is_lora": model.lora.rank > 0,
            "lora_rank": model.lora.rank or None,
        }
    )


@hot.post("/forward_backward")
async def forward_backward(request: Request, service: Service, owner: str) -> Response:
    if request.headers.get("content-type", "").startswith(JSON):
        return await _json_pass(request, service, owner, forward_only=False)
    async with training_body(request, service, owner) as (data, body):
        content = await service.requests.training.read_pass(owner, data)
        await check_place(request, service, content[0], body)
        return await _future(request, service, owner, "forward_backward", content, body)


@hot.post("/forward")
async def forward(request: Request, service: Service, owner: str) -> Response:
    """Of SDKs before 0.25, which send it in JSON; newer ones say `forward_only`."""
    return await _json_pass(request, service, owner, forward_only=True)


@hot.post("/optim_step")
async def optim_step(request: Request, service: Service, owner: str) -> Response:
    return await _accepted(request, service, owner, "optim_step", types.OptimStepRequest)


@router.post("/save_weights")
async def save_weights(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await _accepted(request, service, owner, "save_weights", types.SaveWeightsRequest)


@router.post("/save_weights_for_sampler")
async def save_weights_for_sampler(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await _accepted(request, service, owner, "save_weights_for_sampler", types.SaveWeightsForSamplerRequest)


@router.post("/save_weights_external")
async def save_weights_external(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await _accepted(request, service, owner, "save_weights_external", types.SaveWeightsExternalRequest)


@router.post("/create_sampling_session")
async def create_sampling_session(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, types.CreateSamplingSessionRequest)
    sampler = await service.requests.sampling.create_sampler(owner, content)
    return JSONResponse({"type": "create_sampling_session", "sampling_session_id": sampler.sampler_id})


@router.get("/samplers/{sampler_id}")
async def get_sampler(sampler_id: str, request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    await check_place(request, service, sampler_id)
    sampler = service.sessions.sampler(sampler_id, owner)
    return JSONResponse(
        {"sampler_id": sampler.sampler_id, "base_model": sampler.base_model, "model_path": sampler.model_path}
    )


@hot.post("/asample")
async def asample(request: Request, service: Service, owner: str) -> JSONResponse:
    request_id, sequence_ids = service.requests.sampling.submit(
        owner, (await read_content(request, service, owner, types.SampleRequest))[0]
    )
    return JSONResponse({"request_id": request_id, "sample_sequence_ids": sequence_ids})


@hot.post("/retrieve_future")
async def retrieve_future(request: Request, service: Service, owner: str) -> Response:
    content, _ = await read_content(request, service, owner, FutureRetrieveRequest)
    future = service.requests.intake.future(content.request_id, owner)
    with service.sessions.polling(future.session_id):
        result = await service.sequencer.futures.wait(future, service.settings.long_poll_seconds)
    is_held = service.leases is None or service.leases.is_current  # another may have taken the session over meanwhile
    if result is None or not is_held:
        is_paused = service.sequencer.samples.waits_for_turn(future.request_id)
        state = _PAUSED if is_paused else {"queue_state": "active"}
        return JSONResponse({"type": "try_again", "request_id": future.request_id, **state}, status_code=408)
    accepted = request.headers.get("accept", "")
    if result.media_type == PROTOBUF and JSON in accepted and PROTOBUF not in accepted:
        result = await _in_json(service, owner, result)
    return Response(result.body, media_type=result.media_type, status_code=result.status)


@router.post("/retrieve_futures")
async def retrieve_futures(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content, _ = await read_content(request, service, owner, FuturesRetrieveRequest)
    finished, cursor = await service.requests.sampling.completions(owner, content)
    return JSONResponse({"completions": [_completion(future) for future in finished], "cursor": cursor})


@router.post("/cancel_future")
async def cancel_future(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    service.requests.sampling.cancel(owner, (await read_content(request, service, owner, CancelRequest))[0].request_id)
    return JSONResponse({})


async def _accepted(
    request: Request, service: Service, owner: str, kind: str, content_type: type[BaseModel]
) -> Response:
    """The answer to a request that changes a model. Raises as `read_content`."""
    content, body = await read_content(request, service, owner, content_type)
    return await _future(request, service, owner, kind, content, body)


async def _json_pass(request: Request, service: Service, owner: str, *, forward_only: bool) -> Response:
    """Take a pass that came in JSON; what is kept of it is protobuf."""
    async with json_training_body(request, service, owner, forward_only=forward_only) as (training, body):
        content = await service.requests.training.read_json(owner, training)
        await check_place(request, service, content[0], body)
        kept = Body(bytearray(training.message), encoding="", num_bytes=len(training.message))
        return await _future(request, service, owner, "forward_backward", content, kept)


async def _in_json(service: Service, owner: str, result: Result) -> Result:
    """A result for a client that does not accept protobuf."""
    encode = partial(result_to_json, result.kind, result.body)
    try:
        if len(result.body) <= _INLINE_BYTES:
            return Result(body=encode())
        async with service.requests.reading.hold(owner):
            return Result(body=await asyncio.to_thread(encode))
    except ServiceError as error:
        return Result.of_error(error)


async def _future(
    request: Request, service: Service, owner: str, kind: str, content: object, body: Body
) -> JSONResponse:
    """Take a request; the answer names its future."""
    arrived = Arrived(
        kind=kind, body=body.data, encoding=body.encoding, idempotency_key=request.headers.get("x-idempotency-key")
    )
    request_id, model_id = await service.requests.intake.accept(owner, content, arrived)
    return JSONResponse({"request_id": request_id, "model_id": model_id})


def _completion(future: Future) -> dict[str, str | int]:
    assert future.result is not None
    if future.result.is_failure:
        return {"state": "failed", "request_id": future.request_id}
    return {
        "state": "finished",
        "request_id": future.request_id,
        "response_payload_uncompressed_size": len(future.result.body),
    }
