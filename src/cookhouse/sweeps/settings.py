"""Settings of a sweep."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import chz

from cookhouse.settings.checks import at_least
from cookhouse.settings.facts import facts
from cookhouse.settings.reading import read_if
from cookhouse.settings.training import RegistrationSettings, RunSettings


@chz.chz
class SweepSettings(RunSettings, RegistrationSettings):
    """The runs of a sweep, and how they are compared."""

    help_title = "Sweep"

    recipe: str = chz.field(default="", doc="The recipe of every run.")
    runs: Sequence[Mapping[str, Any]] = chz.field(default=(), doc="Settings of each run.")
    jobs: int = chz.field(default=1, doc="Runs at a time.", validator=at_least(1), metadata=facts(free_on_resume=True))
    min_steps: int | None = chz.field(
        default=None,
        doc="Evaluate every run after this many steps and promote only the best; default: every run takes all steps.",
        validator=at_least(1),
    )
    reduction_factor: int = chz.field(
        default=3,
        doc="Promote the best 1/N at each rung and multiply the steps by N.",
        validator=[at_least(2), read_if(lambda config: config.min_steps, "with min_steps")],
    )
    max_steps: int | None = chz.field(
        default=None,
        doc="Steps of a whole run, with min_steps.",
        validator=read_if(lambda config: config.min_steps, "with min_steps"),
    )
    metric: str | None = chz.field(
        default=None,
        doc="Metric by which runs are compared; default: the most telling one that all of them have; with min_steps, "
        "the held-out loss.",
    )
    direction: Literal["less", "more"] | None = chz.field(
        default=None, doc="Whether lower or higher is better; default: as the metric is declared."
    )
