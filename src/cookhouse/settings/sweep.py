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
    """Which runs there are, and how the best of them is told."""

    help_title = "Sweep"

    recipe: str = chz.field(default="", doc="The recipe of every run.")
    runs: Sequence[Mapping[str, Any]] = chz.field(default=(), doc="Settings of each run.")
    jobs: int = chz.field(default=1, doc="Runs at a time.", validator=at_least(1), metadata=facts(free_on_resume=True))
    min_steps: int | None = chz.field(
        default=None,
        doc="Steps after which runs are first compared, of which the best go on; default: every run takes all steps.",
        validator=at_least(1),
    )
    reduction_factor: int = chz.field(
        default=3,
        doc="Of runs that are compared, one in so many goes on, to so many times the steps.",
        validator=[at_least(2), read_if(lambda config: config.min_steps, "with min_steps")],
    )
    max_steps: int | None = chz.field(default=None, doc="Steps of a whole run, with min_steps.")
    metric: str | None = chz.field(
        default=None, doc="Metric by which runs are compared; default: the most telling one that all of them have."
    )
    direction: Literal["less", "more"] | None = chz.field(
        default=None, doc="Which way the metric is better; default: as it is declared."
    )
