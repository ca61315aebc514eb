"""More workers and fewer, for the server's operator."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from cookhouse.server.http.routes.exchange import Operator, ServiceOf, content_of
from cookhouse.server.pool.plans import Kind

router = APIRouter()


class AddRequest(BaseModel):
    kind: Kind | None = None


class DrainRequest(BaseModel):
    seconds: float = Field(default=60.0, ge=0, allow_inf_nan=False)
    """To let running samples finish."""


@router.post("/workers")
async def add(request: Request, service: ServiceOf, _operator: Operator) -> JSONResponse:
    """Answered while the worker starts."""
    content = await content_of(request, AddRequest)
    plan = service.requests.workers.add(content.kind)
    return JSONResponse({"name": plan.name, "trains": plan.trains, "samples": plan.samples})


@router.post("/workers/{name}/drain")
async def drain(name: str, request: Request, service: ServiceOf, _operator: Operator) -> JSONResponse:
    """Answered once the worker gets no new work; the status has it until it has stopped."""
    content = await content_of(request, DrainRequest)
    num_models = service.requests.workers.drain(name, content.seconds)
    return JSONResponse({"name": name, "num_models": num_models, "seconds": content.seconds})
