"""What a `TrainingClient` sends; all but `get_info` answer with a future."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from tinker import types

from cookhouse.server.http.routes.exchange import (
    HotRoutes,
    Owner,
    ServiceOf,
    accepted,
    check_place,
    content_of,
    future_answer,
    training_body,
)
from cookhouse.server.requests.intake import Arrived
from cookhouse.server.service import Service

router = APIRouter()
hot = HotRoutes()


@router.post("/create_model")
async def create_model(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await accepted(request, service, owner, "create_model", types.CreateModelRequest)


@router.post("/load_weights")
async def load_weights(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await accepted(request, service, owner, "load_weights", types.LoadWeightsRequest)


@router.post("/get_info")
async def get_info(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, types.GetInfoRequest)
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
    async with training_body(request, owner) as (data, body):
        content = await service.requests.training.read_pass(owner, data)
        await check_place(request, service, content[0], body)
        arrived = Arrived(kind="forward_backward", body=body.data, encoding=body.encoding)
        return future_answer(*await service.requests.intake.accept(owner, content, arrived))


@hot.post("/optim_step")
async def optim_step(request: Request, service: Service, owner: str) -> Response:
    return await accepted(request, service, owner, "optim_step", types.OptimStepRequest)


@router.post("/save_weights")
async def save_weights(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await accepted(request, service, owner, "save_weights", types.SaveWeightsRequest)


@router.post("/save_weights_for_sampler")
async def save_weights_for_sampler(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await accepted(request, service, owner, "save_weights_for_sampler", types.SaveWeightsForSamplerRequest)


@router.post("/save_weights_external")
async def save_weights_external(request: Request, service: ServiceOf, owner: Owner) -> Response:
    return await accepted(request, service, owner, "save_weights_external", types.SaveWeightsExternalRequest)
