"""More workers and fewer, for the server's operator."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from cookhouse.server.routes.exchange import Operator, ServiceOf, content_of

router = APIRouter()


class DrainRequest(BaseModel):
    seconds: float = Field(default=60.0, ge=0, allow_inf_nan=False)
    """How long its samples are waited for."""


@router.post("/workers")
async def add(service: ServiceOf, _operator: Operator) -> JSONResponse:
    """Answered while the worker is being started."""
    plan = service.workers.add()
    return JSONResponse({"name": plan.name, "trains": plan.trains, "samples": plan.samples})


@router.post("/workers/{name}/drain")
async def drain(name: str, request: Request, service: ServiceOf, _operator: Operator) -> JSONResponse:
    """Answered once the worker is given nothing new; the status has it until it has ended."""
    content = await content_of(request, DrainRequest)
    num_models = await service.workers.drain(name, content.seconds)
    return JSONResponse({"name": name, "num_models": num_models, "seconds": content.seconds})
