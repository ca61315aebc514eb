"""One piece of training work, the place it has in a run, and what an assembler makes of a batch."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import tinker

from cookhouse.weights.checkpoints import Cursor

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Assembled(Generic[P_co]):
    """Output of an assembler: datums, further values for the objective, and figures of the making."""

    data_D: Sequence[tinker.Datum]
    payload: P_co
    metrics: Mapping[str, float] = field(default_factory=dict)
    labels: Sequence[str] = ()
    """What datums that follow one another are to each other, where several make an example: chosen, rejected. Empty:
    each is one."""


Assembler: TypeAlias = Callable[[T], Awaitable[Assembled[P]]]
"""Turns a batch of what a source has (rows, pairs, groups of rollouts) into datums. It may ask the service for
something on the way, such as the logprobs of a reference; it runs ahead of training."""


@dataclass(frozen=True, kw_only=True)
class Work(Generic[P_co]):
    """Datums for one `forward_backward`: those of a whole step, or one piece of them."""

    cursor: Cursor
    data_D: Sequence[tinker.Datum]
    """Empty where nothing came of a piece: then nothing is asked for it but the optimizer step that it may close, if
    there is a gradient."""
    payload: P_co
    """What the assembler hands to the objective besides, such as the pairs that the datums stand in."""
    closes_update: bool = True
    """Whether an `optim_step` follows, on the gradient of this piece and of those before it that had none; where none
    of them has datums there is no gradient, and no step."""
    closes_step: bool = True
    """Whether it is the last piece of its step: an evaluation, a save or new sampler weights can only follow this."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What its making found out, to stand in the metrics of the step."""
    labels: Sequence[str] = ()
    """As in `Assembled`."""
    ready_seconds: float = field(default=0.0, compare=False)
    """When what it takes long to make was there, of `time.perf_counter`; it may have waited to be taken since."""
