"""The addresses: a module for each kind of page, which exports `ROUTES`."""

from cookhouse.view.routes import events, runs

ROUTES = [
    *events.ROUTES,
    *runs.ROUTES,
]

__all__ = ["ROUTES"]
