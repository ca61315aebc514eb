"""Routes that the SDK can call and this server does not have: each says so and why, and is not tried again."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from cookhouse.server.http.routes.exchange import Owner
from cookhouse.server.refusals import NotFoundError

router = APIRouter()

_NOT_OFFERED = {
    "/audit": ("an audit log", "its log (server.log in its state folder) has what went wrong"),
    "/billing/usage/events": ("billing", "it costs nothing but the machine it runs on"),
    "/billing/usage/checkpoints/current": (
        "billing",
        "RestClient.list_user_checkpoints() has the sizes of checkpoints",
    ),
    "/auth/token": ("tokens in place of keys", "send the key in X-API-Key"),
    "/auth/apikey/me": ("a login", "set TINKER_API_KEY to the key that it was started with or that it printed"),
    "/create_custom_loss": ("losses traced on the client", "pass forward_backward_custom a plain function"),
    "/unload_model": ("unloading of one model", "close its ServiceClient, which frees what its session has"),
    "/join_sampling_session": ("ids for clones of samplers", "the SDK draws one by itself"),
}


async def _refuse(request: Request, _owner: Owner) -> JSONResponse:
    route = request.url.path.partition("/api/v1")[2]
    what, way_out = _NOT_OFFERED[route]
    raise NotFoundError(f"{what}: not offered by this server; {way_out}")


for _route in _NOT_OFFERED:
    router.add_api_route(_route, _refuse, methods=["GET", "POST", "DELETE"])
