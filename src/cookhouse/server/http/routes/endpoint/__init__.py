"""The routes of other protocols' clients: applications of their own, whose errors have the form of each."""

from cookhouse.server.http.routes.endpoint.application import (
    PREFIXES,
    ROOT_PATHS,
    ROOT_ROUTER,
    ROUTERS,
    create_endpoint,
)

__all__ = ["PREFIXES", "ROOT_PATHS", "ROOT_ROUTER", "ROUTERS", "create_endpoint"]
