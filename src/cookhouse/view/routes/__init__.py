"""The addresses: a module for each kind of page, which exports `ROUTES`."""

from cookhouse.view.routes import answers, compare, events, experiments, playground, rollouts, run, runs, steps

ROUTES = [
    *answers.ROUTES,
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
