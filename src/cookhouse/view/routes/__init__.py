"""The addresses: a module for each kind of page, which exports `ROUTES`."""

from cookhouse.view.routes import (
    answers,
    compare,
    evaluations,
    events,
    experiments,
    playground,
    rollouts,
    run,
    runs,
    steps,
)

ROUTES = [
    *answers.ROUTES,
    *evaluations.ROUTES,
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
