"""The HTTP application around a service."""

import logging
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route

from cookhouse.errors import InputError
from cookhouse.server.access.middleware import Guard, Latencies, Timed, endpoint_names
from cookhouse.server.http.page import page_routes
from cookhouse.server.http.routes import HOT_ROUTES, PLAIN_ROUTER, ROUTERS, endpoint
from cookhouse.server.http.routes.exchange import elsewhere, forget
from cookhouse.server.leases.placing import ElsewhereError
from cookhouse.server.refusals import BusyError, StorageBusyError, StorageError, UnauthorizedError, status_of
from cookhouse.server.service import Service
from cookhouse.server.status import Metrics, ServerStatus, WorkerWatches

_log = logging.getLogger(__name__)
_MAX_NAMED_PROBLEMS = 3
_PREFIX = "/api/v1"
_FATAL = (404, 410)
"""With which a client gives something up that another server may have."""
PAGE = "/page"
"""Where the page is."""


def create_app(service: Service, *, is_loopback: bool = True) -> FastAPI:
    """An application of a service that is open, which it closes when it ends.

    `is_loopback`: only programs of this machine can reach it, so that it is asked for by this machine's names.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(title="cookhouse", lifespan=lifespan, openapi_url=None)
    app.state.service = service
    latencies = Latencies()
    watches = WorkerWatches(service.pool)
    app.state.status = ServerStatus(service, latencies, watches)
    app.state.metrics = Metrics(service, watches)
    app.add_middleware(service.draining.gate)
    app.add_middleware(Guard, is_loopback=is_loopback)
    page = page_routes(PAGE)
    app.add_middleware(
        Timed, latencies=latencies, routes=_endpoint_names() | {file.endpoint: f"GET {PAGE}/" for file in page}
    )
    for route in HOT_ROUTES:
        app.add_route(_PREFIX + route.path, route.endpoint, methods=["POST"])
    for router in ROUTERS:
        app.include_router(router, prefix=_PREFIX)
    others = endpoint.create_endpoint(service)
    for prefix in endpoint.PREFIXES:
        app.mount(prefix, others)
    at_root = endpoint.create_endpoint(service, [endpoint.ROOT_ROUTER])
    for path in endpoint.ROOT_PATHS:
        app.router.routes.append(Route(path, at_root))
    app.include_router(PLAIN_ROUTER)
    app.router.routes.extend(page)
    app.add_exception_handler(ClientDisconnect, forget)
    app.add_exception_handler(ElsewhereError, elsewhere)
    app.add_exception_handler(InputError, _refuse)
    app.add_exception_handler(StorageError, _refuse)
    app.add_exception_handler(ValidationError, _refuse_malformed)
    app.add_exception_handler(RequestValidationError, _refuse_malformed)
    app.add_exception_handler(HTTPException, _refuse_unknown_route)
    app.add_exception_handler(Exception, _admit_fault)
    return app


def _endpoint_names() -> dict[Hashable, str]:
    names = endpoint_names(_PREFIX, HOT_ROUTES)
    for router in endpoint.ROUTERS:
        names |= endpoint_names(endpoint.PREFIXES[0], router.routes)
    names |= endpoint_names("", endpoint.ROOT_ROUTER.routes)
    for router in ROUTERS:
        names |= endpoint_names(_PREFIX, router.routes)
    return names | endpoint_names("", PLAIN_ROUTER.routes)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    leases = request.app.state.service.leases
    if leases is not None and status_of(error) in _FATAL and getattr(request.state, "is_of_session", False):
        try:
            await leases.check()
        except StorageError as unsure:
            error = unsure
    error = request.app.state.service.rules.as_answered(error)
    headers = {}
    if isinstance(error, BusyError | StorageBusyError):
        headers["Retry-After"] = "1"
    elif isinstance(error, UnauthorizedError):
        headers["Connection"] = "close"
    return JSONResponse({"detail": str(error)}, status_code=status_of(error), headers=headers)


async def _refuse_malformed(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ValidationError | RequestValidationError)
    problems = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'body'}: {problem['msg']}"
        for problem in error.errors()[:_MAX_NAMED_PROBLEMS]
    ]
    return JSONResponse({"detail": f"the request cannot be read: {'; '.join(problems)}"}, status_code=400)


async def _refuse_unknown_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    detail = error.detail
    if error.status_code in (404, 405):
        detail = f"this server has no {request.method} {request.url.path}"
    return JSONResponse({"detail": detail}, status_code=error.status_code)


async def _admit_fault(_request: Request, _error: Exception) -> JSONResponse:
    # Starlette raises it again after this answer, so that uvicorn logs the traceback.
    return JSONResponse({"detail": "the server failed; its log has the details"}, status_code=500)
