"""The routes of other protocols' clients: applications of their own, whose errors have the form of each."""

from cookhouse.server.http.routes.endpoint.application import PREFIXES, ROUTERS, create_endpoint

__all__ = ["PREFIXES", "ROUTERS", "create_endpoint"]
