"""What a `TrainingClient` sends; all but `get_info` answer with a future."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse
from tinker import types

from cookhouse.server.routes.exchange import HotRoutes, Owner, ServiceOf, content_of, future_answer, training_body
from cookhouse.server.service import Service

router = APIRouter()
hot = HotRoutes()


@router.post("/create_model")
async def create_model(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    model = service.training.create_model(owner, await content_of(request, types.CreateModelRequest))
    return future_answer(model.creation, model.model_id)


@router.post("/load_weights")
async def load_weights(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, types.LoadWeightsRequest)
    return future_answer(*await service.training.load_weights(owner, content))


@router.post("/get_info")
async def get_info(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, types.GetInfoRequest)
    model = service.sessions.model(content.model_id, owner)
    info = service.base_models.named(model.base_model)
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
async def forward_backward(request: Request, service: Service, owner: str) -> JSONResponse:
    async with training_body(request, owner) as body:
        return future_answer(*await service.training.forward_backward(owner, body))


@hot.post("/optim_step")
async def optim_step(request: Request, service: Service, owner: str) -> JSONResponse:
    content = await content_of(request, types.OptimStepRequest)
    return future_answer(service.training.optim_step(owner, content), content.model_id)


@router.post("/save_weights")
async def save_weights(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, types.SaveWeightsRequest)
    return future_answer(service.saving.save_state(owner, content), content.model_id)


@router.post("/save_weights_for_sampler")
async def save_weights_for_sampler(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, types.SaveWeightsForSamplerRequest)
    return future_answer(service.saving.save_for_sampler(owner, content), content.model_id)


@router.post("/save_weights_external")
async def save_weights_external(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, types.SaveWeightsExternalRequest)
    return future_answer(service.saving.save_external(owner, content), content.model_id)
