"""How the server does: for its page, and for programs of whoever operates it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cookhouse.server.http.routes.exchange import Owner
from cookhouse.server.status import Status

router = APIRouter()


async def _status(request: Request) -> Status:
    status: Status = request.app.state.status
    return status


@router.get("/status")
async def status(asked: Annotated[Status, Depends(_status)], owner: Owner) -> Response:
    """What its tenant may see: of the first key everything, of any other its own things, and sums."""
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(await asked.of(owner), media_type="application/json", headers=headers)
