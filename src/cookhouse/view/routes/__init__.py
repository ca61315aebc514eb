"""The addresses: a module for each kind of page, which exports `ROUTES`."""

from cookhouse.view.routes import events, experiments, playground, runs

ROUTES = [
    *events.ROUTES,
    *experiments.ROUTES,
    *runs.ROUTES,
    *playground.ROUTES,
]

__all__ = ["ROUTES"]
