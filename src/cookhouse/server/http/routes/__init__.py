"""HTTP routes: read a request, hand it to the service, write the answer. They hold no policy."""

from cookhouse.server.http.routes import checkpoints, not_offered, operation, requests, sessions

ROUTERS = (checkpoints.router, not_offered.router, operation.router, requests.router, sessions.router)

PLAIN_ROUTER = operation.plain
"""Of no prefix."""

HOT_ROUTES = (*requests.hot.routes, *sessions.hot.routes)
"""Of the same prefix as `ROUTERS`, and before them."""

__all__ = ["HOT_ROUTES", "PLAIN_ROUTER", "ROUTERS"]
