"""The addresses: a module for each kind of page, which exports `ROUTES`."""

from cookhouse.view.routes import events, experiments, runs

ROUTES = [
    *events.ROUTES,
    *experiments.ROUTES,
    *runs.ROUTES,
]

__all__ = ["ROUTES"]
