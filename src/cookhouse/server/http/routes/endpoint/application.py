"""Applications of the routes that other protocols' clients ask: under /v1, and those that stand at the root."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route

from cookhouse.dialects import anthropic, openai
from cookhouse.dialects.errors import FieldError, field_of
from cookhouse.errors import CookhouseError
from cookhouse.server.http.routes.endpoint import messages, models, responses, tokens
from cookhouse.server.http.routes.endpoint import openai as openai_routes
from cookhouse.server.http.routes.endpoint.exchange import ClientGoneError
from cookhouse.server.http.routes.endpoint.request_ids import RequestIds, id_header, is_for_anthropic, request_id
from cookhouse.server.http.routes.exchange import forget
from cookhouse.server.refusals import BusyError, StorageBusyError, message_of, status_of
from cookhouse.server.requests.completions.kept_responses import NoResponseError
from cookhouse.server.service import Service

ROUTERS = (openai_routes.router, responses.router, messages.router, models.router)
"""Under /v1."""
ROOT_ROUTER = tokens.router
ROOT_PATHS = [route.path for route in tokens.router.routes if isinstance(route, Route)]
PREFIXES = ("/v1", "/oai/api/v1", "/anthropic/api/v1")
"""The second and third are the hosted service's."""
_TWICE = "/v1/v1/"


def create_endpoint(service: Service, routers: Sequence[APIRouter] = ROUTERS) -> FastAPI:
    """An application over a service that another one opens and closes."""
    app = FastAPI(title="cookhouse", openapi_url=None)
    app.state.service = service
    for router in routers:
        app.include_router(router)
    app.add_middleware(RequestIds)
    if origins := service.settings.allowed_origins:
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
    app.add_exception_handler(ClientGoneError, forget)
    app.add_exception_handler(ClientDisconnect, forget)
    app.add_exception_handler(CookhouseError, _refuse)
    app.add_exception_handler(ValidationError, _refuse_malformed)
    app.add_exception_handler(RequestValidationError, _refuse_unknown_route)
    app.add_exception_handler(HTTPException, _refuse_unknown_route)
    app.add_exception_handler(Exception, _admit_fault)
    return app


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    return _refusal(request, error)


async def _refuse_malformed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ValidationError)
    return _refusal(request, field_of(error))


async def _refuse_unknown_route(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 400
    detail = error.detail if isinstance(error, HTTPException) else "the request cannot be read"
    if status in (404, 405):
        detail = f"this server has no {request.method} {request.url.path}"
        if _TWICE in request.url.path:
            detail += "; the client adds /v1 to its base address, which ends without it"
    return _answer(request, status, openai.error_body(detail, status), detail)


async def _admit_fault(request: Request, _error: Exception) -> JSONResponse:
    # Starlette raises it again after this answer, so that uvicorn logs the traceback.
    detail = "the server failed; its log has the details"
    return _answer(request, 500, openai.error_body(detail, 500), detail)


def _refusal(request: Request, error: Exception) -> JSONResponse:
    status, message = status_of(error), message_of(error)
    body = openai.error_body(message, status)
    if isinstance(error, FieldError):
        body = openai.error_body(message, status, field=error.field, code=error.code)
    elif status == 404 and not isinstance(error, NoResponseError):
        body = openai.error_body(message, status, field="model", code="model_not_found")
    answer = _answer(request, status, body, message)
    if isinstance(error, BusyError | StorageBusyError):
        answer.headers["Retry-After"] = "1"
    return answer


def _answer(request: Request, status: int, body: object, message: str) -> JSONResponse:
    """The error in OpenAI's form, or in Anthropic's where its client asks."""
    scope = request.scope
    if is_for_anthropic(scope):
        body = {**anthropic.error_body(message, status), "request_id": request_id(scope)}
    return JSONResponse(body, status_code=status, headers=id_header(scope))
