"""The addresses: a module for each kind of page, which exports `ROUTES`."""

from cookhouse.view.routes import runs

ROUTES = [
    *runs.ROUTES,
]

__all__ = ["ROUTES"]
