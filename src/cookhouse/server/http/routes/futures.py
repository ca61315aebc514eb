"""Results of accepted requests."""

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response
from tinker.types.future_retrieve_request import FutureRetrieveRequest
from tinker.types.futures_retrieve_request import FuturesRetrieveRequest

from cookhouse.server.http.routes.exchange import HotRoutes, Owner, ServiceOf, content_of
from cookhouse.server.sequencer.futures import Future
from cookhouse.server.service import Service

router = APIRouter()
hot = HotRoutes()


class CancelRequest(BaseModel):
    request_id: str


@hot.post("/retrieve_future")
async def retrieve_future(request: Request, service: Service, owner: str) -> Response:
    content = await content_of(request, FutureRetrieveRequest)
    future = service.future(content.request_id, owner)
    with service.sessions.polling(future.session_id):
        result = await service.sequencer.futures.wait(future, service.settings.long_poll_seconds)
    is_held = service.leases is None or service.leases.is_current  # another may have taken the session over meanwhile
    if result is None or not is_held:
        return JSONResponse(
            {"type": "try_again", "request_id": future.request_id, "queue_state": "active"}, status_code=408
        )
    return Response(result.body, media_type=result.media_type, status_code=result.status)


@router.post("/retrieve_futures")
async def retrieve_futures(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    content = await content_of(request, FuturesRetrieveRequest)
    finished, cursor = await service.requests.sampling.completions(owner, content)
    return JSONResponse({"completions": [_completion(future) for future in finished], "cursor": cursor})


@router.post("/cancel_future")
async def cancel_future(request: Request, service: ServiceOf, owner: Owner) -> JSONResponse:
    service.requests.sampling.cancel(owner, (await content_of(request, CancelRequest)).request_id)
    return JSONResponse({})


def _completion(future: Future) -> dict[str, str | int]:
    assert future.result is not None
    if future.result.is_failure:
        return {"state": "failed", "request_id": future.request_id}
    return {
        "state": "finished",
        "request_id": future.request_id,
        "response_payload_uncompressed_size": len(future.result.body),
    }
