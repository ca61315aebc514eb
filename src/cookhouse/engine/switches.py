"""Ways to compute on a GPU that no GPU has measured yet: off unless the environment turns them on. On a CPU they do
nothing. Once both ways have been measured, the worse one and its switch go.

COOKHOUSE_GPU_TRIALS    any of these, separated by commas
wide_products           logits and gradients of adapters are rounded to fp32, not to bf16
fa3                     training attention by FlashAttention 3, where it is installed; compute capability 9.0
fla                     training passes of gated delta layers by flash-linear-attention, where it is installed
growing_cache           key-value caches begin small and grow by copies, instead of being taken whole
"""

import functools
import os
from typing import Literal, get_args

from cookhouse.errors import InputError

VARIABLE = "COOKHOUSE_GPU_TRIALS"
Switch = Literal["wide_products", "fa3", "fla", "growing_cache"]


def is_on(switch: Switch) -> bool:
    """True if the environment turns it on.

    Raises:
        InputError: the variable names something else as well.
    """
    return switch in _chosen()


@functools.cache
def _chosen() -> frozenset[str]:
    """Read once: what is computed must not change while an engine runs."""
    names = frozenset(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())
    unknown = sorted(names - set(get_args(Switch)))
    if unknown:
        raise InputError(
            f"{VARIABLE} names {', '.join(unknown)}; use any of {', '.join(get_args(Switch))}, or unset it"
        )
    return names
