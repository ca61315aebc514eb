"""One piece of training work, and the place it has in a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tinker


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """A place in a run: the next step. With the run's config it decides everything that follows."""

    epoch: int = 0
    batch: int = 0
    """Batch within the epoch."""
    step: int = 0
    """Steps before this one, over all epochs. A step is one batch: one optimizer step, or, where a batch of rollouts is
    split into substeps or used several times, all of those."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Datums for one `forward_backward`: those of a whole step, or one piece of them."""

    cursor: Cursor
    data_D: Sequence[tinker.Datum]
    """Empty where nothing came of a piece: then nothing is asked for it but the optimizer step that it may close."""
    closes_update: bool = True
    """Whether an `optim_step` follows, on the gradient of this piece and of those before it that had none."""
    closes_step: bool = True
    """Whether it is the last piece of its step: an evaluation, a save or new sampler weights can only follow this."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What its making found out, to stand in the metrics of the step."""
