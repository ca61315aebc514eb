"""HTTP routes: read a request, hand it to the service, write the answer. They hold no policy."""

from cookhouse.server.http.routes import (
    archive,
    external_weights,
    futures,
    not_offered,
    sampling,
    session_archive,
    sessions,
    sharing,
    status,
    training,
    usage,
    workers,
)

ROUTERS = (
    archive.router,
    external_weights.router,
    futures.router,
    not_offered.router,
    sampling.router,
    session_archive.router,
    sessions.router,
    sharing.router,
    status.router,
    training.router,
    usage.router,
    workers.router,
)

HOT_ROUTES = (*sampling.hot.routes, *futures.hot.routes, *training.hot.routes, *sessions.hot.routes)
"""Of the same prefix as `ROUTERS`, and before them."""

__all__ = ["HOT_ROUTES", "ROUTERS"]
