"""The application that is served under /v1."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from cookhouse.dialects.errors import FieldError, field_of
from cookhouse.dialects.openai import error_body
from cookhouse.errors import CookhouseError
from cookhouse.server.http.routes.exchange import forget
from cookhouse.server.http.routes.openai.exchange import ClientGoneError
from cookhouse.server.http.routes.openai.routes import router
from cookhouse.server.refusals import BusyError, StorageBusyError, message_of, status_of
from cookhouse.server.service import Service


def create_endpoint(service: Service) -> FastAPI:
    """An application over a service that another one opens and closes."""
    app = FastAPI(title="cookhouse", openapi_url=None)
    app.state.service = service
    app.include_router(router)
    app.add_exception_handler(ClientGoneError, forget)
    app.add_exception_handler(ClientDisconnect, forget)
    app.add_exception_handler(CookhouseError, _refuse)
    app.add_exception_handler(ValidationError, _refuse_malformed)
    app.add_exception_handler(RequestValidationError, _refuse_unknown_route)
    app.add_exception_handler(HTTPException, _refuse_unknown_route)
    app.add_exception_handler(Exception, _admit_fault)
    return app


async def _refuse(_request: Request, error: Exception) -> JSONResponse:
    return refusal(error)


async def _refuse_malformed(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ValidationError)
    return refusal(field_of(error))


async def _refuse_unknown_route(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 400
    detail = error.detail if isinstance(error, HTTPException) else "the request cannot be read"
    if status in (404, 405):
        detail = f"this server has no {request.method} {request.url.path}"
    return JSONResponse(error_body(detail, status), status_code=status)


async def _admit_fault(_request: Request, _error: Exception) -> JSONResponse:
    # Starlette raises it again after this answer, so that uvicorn logs the traceback.
    return JSONResponse(error_body("the server failed; its log has the details", 500), status_code=500)


def refusal(error: Exception) -> JSONResponse:
    status = status_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, BusyError | StorageBusyError):
        headers["Retry-After"] = "1"
    body: dict[str, Any] = error_body(message_of(error), status)
    if isinstance(error, FieldError):
        body = error_body(str(error), status, field=error.field, code=error.code)
    elif status == 404:
        body = error_body(str(error), status, field="model", code="model_not_found")
    return JSONResponse(body, status_code=status, headers=headers)
