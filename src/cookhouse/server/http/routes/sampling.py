"""What a `SamplingClient` sends."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse
from tinker import types

from cookhouse.server.http.routes.exchange import HotRoutes, Owner, ServiceOf, check_place, content_of
from cookhouse.server.service import Service

router = APIRouter()
hot = HotRoutes()


@router.post("/create_sampling_session")
async def create_sampling_session(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, types.CreateSamplingSessionRequest)
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
    request_id, sequence_ids = service.requests.sampling.submit(owner, await content_of(request, types.SampleRequest))
    return JSONResponse({"request_id": request_id, "sample_sequence_ids": sequence_ids})
