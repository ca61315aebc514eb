"""The addresses: a module for each kind of page, which exports `ROUTES`."""

from cookhouse.view.routes import compare, events, experiments, playground, run, runs

ROUTES = [
    *events.ROUTES,
    *experiments.ROUTES,
    *playground.ROUTES,
    *runs.ROUTES,
    *run.ROUTES,
    *compare.ROUTES,
]

__all__ = ["ROUTES"]
