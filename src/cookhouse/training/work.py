"""One piece of training work, and the place it has in a run."""

from collections.abc import Sequence
from dataclasses import dataclass

import tinker


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A place in a run: the next piece of work. With the run's config it decides everything that follows."""

    epoch: int = 0
    batch: int = 0
    """Batch within the epoch."""
    step: int = 0
    """Optimizer steps before this one, over all epochs."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The datums of one optimizer step."""

    cursor: Cursor
    data_D: Sequence[tinker.Datum]
