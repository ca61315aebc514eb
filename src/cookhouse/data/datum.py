"""Examples to the SDK's datums: truncation, the shift by one, and the reduction of weights.

Legend: T positions.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.errors import InputError

Reduction = Literal["mean", "none"]
"""`mean`: the weights of an example sum to 1, so that long and short answers count alike. `none`: every token does."""


def datum_from_example(
    model_input: tinker.ModelInput, weights: Sequence[float], max_length: int | None, reduction: Reduction
) -> tinker.Datum:
    """The datum that trains an example whose weights are one for each token, not shifted.

    The sequence is cut on the right to `max_length` tokens; then inputs drop the last token, targets and weights the
    first, so that position t of the input predicts target t.

    Raises:
        InputError: fewer than two tokens, lengths that differ, or no trained token is left.
    """
    tokens_T = np.asarray(model_input.to_ints(), dtype=np.int64)
    weights_T = np.asarray(weights, dtype=np.float32)
    if tokens_T.shape != weights_T.shape:
        raise InputError(f"an example has {tokens_T.size} tokens and {weights_T.size} weights; they must match")
    return shifted_datum(tokens_T[:max_length], weights_T[:max_length], reduction)


def shifted_datum(
    tokens_T: NDArray[np.int64] | NDArray[np.int32], weights_T: NDArray[np.float32], reduction: Reduction
) -> tinker.Datum:
    """`datum_from_example` on arrays that are cut already."""
    target_weights = weights_T[1:]
    total = float(target_weights.sum())
    if tokens_T.size < 2 or total <= 0:
        raise InputError("an example has no trained token to predict")
    if reduction == "mean":
        target_weights = target_weights / np.float32(total)
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens_T[:-1].tolist()),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData.from_numpy(tokens_T[1:].astype(np.int64)),
            "weights": tinker.TensorData.from_numpy(target_weights.astype(np.float32)),
        },
    )
