"""Protocol of a loss, and its arguments.

Legend: M targets of several datums, D datums.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from cookhouse.engine.contract import ForwardBackward


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """Inputs of a loss besides lp: float inputs by name, options, and the datum of each target.

    Tensors hold the M targets of several datums end to end, fp32; `datum_M` counts from 0 and never decreases.
    """

    values: Mapping[str, Tensor]
    config: Mapping[str, float]
    datum_M: Tensor
    sums_D: Mapping[str, Tensor] = field(default_factory=dict)
    """Inputs of a datum as a whole, fp64."""


LossFunction = Callable[[Tensor, LossInputs], Tensor]
"""(lp_M, inputs) to the losses of elements, or of groups of datums, whose sum is meant."""


def _nothing_more(request: ForwardBackward) -> None:
    del request


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss function and what it reads."""

    function: LossFunction
    inputs: frozenset[str]
    """Names of float inputs besides `target_tokens`; all are required unless they have a default."""
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Inputs that may be absent, with the value that then stands at every position."""
    config: Mapping[str, float] = field(default_factory=dict)
    """Options and their defaults."""
    sums: frozenset[str] = frozenset()
    """Names of inputs that are of a datum as a whole: float values of any number, which are added up."""
    group_datums: int = 1
    """Datums that are computed together, neighbors of a request. Of groups, log-probabilities are returned as sums, and
    of what has weight."""
    check: Callable[[ForwardBackward], None] = _nothing_more
    """Raises `InputError` for what is wrong with a request whose datums are right one by one."""
