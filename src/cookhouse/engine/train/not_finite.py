"""Search for the datum of a request that made a loss, or its derivative, not finite."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cookhouse.engine.contract import ForwardBackward


def place(
    request: ForwardBackward,
    members: Sequence[int],
    values: NDArray[np.float32],
    logprobs_D: Sequence[NDArray[np.float32]],
) -> str | None:
    """The first datum with such a value, in words, and of its targets with one the farthest from what is usual.

    `members` are datums of the request, `values` those of their targets, end to end, or of groups of datums;
    `logprobs_D` what the weights give for each datum. None: all are finite.
    """
    bad = np.flatnonzero(~np.isfinite(values))
    if not bad.size:
        return None
    targets_D = [request.data_D[datum].loss_fn_inputs["target_tokens"] for datum in members]
    ends = np.cumsum([targets.size for targets in targets_D])
    if values.size != ends[-1]:
        size = len(members) // values.size
        first = int(bad[0]) * size
        return "datums " + " and ".join(str(datum) for datum in members[first : first + size])
    at = int(np.searchsorted(ends, bad[0], side="right"))
    datum, targets = members[at], targets_D[at]
    own = bad[bad < ends[at]] - (ends[at] - targets.size)
    inputs = {key: array for key, array in request.data_D[datum].loss_fn_inputs.items() if array is not targets}
    sizes = [np.abs(array.reshape(-1)[own]) for array in inputs.values() if array.size == targets.size]
    target = int(own[np.argmax(np.max(sizes, axis=0))]) if sizes else int(own[0])
    found = f"datum {datum}, position {target // (targets.size // targets.shape[0])}"
    logprob = logprobs_D[datum].reshape(-1)[target] if logprobs_D[datum].size == targets.size else 0.0
    if not np.isfinite(logprob):
        return f"{found}, where the weights give a log-probability of {logprob:g}"
    told = [f"{key} {array.reshape(-1)[target]:g}" for key, array in inputs.items() if array.size == targets.size]
    return f"{found}, with {', '.join(told)}" if told else found
