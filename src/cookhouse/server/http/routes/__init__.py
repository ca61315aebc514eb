"""HTTP routes: read a request, hand it to the service, write the answer. They hold no policy."""

from cookhouse.server.http.routes import checkpoints, clients, not_offered, operation, sessions, uploads

ROUTERS = (checkpoints.router, clients.router, not_offered.router, operation.router, sessions.router, uploads.router)

PLAIN_ROUTER = operation.plain
"""Of no prefix."""

HOT_ROUTES = (*clients.hot.routes, *sessions.hot.routes)
"""Of the same prefix as `ROUTERS`, and before them."""

__all__ = ["HOT_ROUTES", "PLAIN_ROUTER", "ROUTERS"]
