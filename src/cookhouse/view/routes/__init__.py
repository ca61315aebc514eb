"""The addresses: a module for each kind of page, which exports `ROUTES`."""

from cookhouse.view.routes import compare, events, experiments, playground, rollouts, run, runs, steps

ROUTES = [
    *events.ROUTES,
    *experiments.ROUTES,
    *playground.ROUTES,
    *rollouts.ROUTES,
    *steps.ROUTES,
    *runs.ROUTES,
    *run.ROUTES,
    *compare.ROUTES,
]

__all__ = ["ROUTES"]
