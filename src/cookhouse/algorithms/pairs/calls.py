"""Calls for losses over pairs that the service computes: what it is sent, a request at a time, and what it answers.

Legend: D datums (chosen, rejected, chosen, ...), P pairs.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.training.clients.client import PairLossOffer
from cookhouse.training.loop.objective import Fields

_TOKEN_BYTES = 4
"""Of a token of `model_input` on the wire."""


def with_reference(data_D: Sequence[tinker.Datum], reference_P2: NDArray[np.float64]) -> list[tinker.Datum]:
    """The datums with `reference_logprobs`: two values each, which add up to what the reference says of the answer more
    exactly than one of fp32 could say it.
    """
    found = []
    for datum, total in zip(data_D, reference_P2.reshape(-1), strict=True):
        most = np.float32(total)
        values = np.array([most, total - np.float64(most)], dtype=np.float32)
        inputs = {**datum.loss_fn_inputs, "reference_logprobs": tinker.TensorData.from_numpy(values)}
        found.append(tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs))
    return found


def whole_pairs(data_D: Sequence[tinker.Datum], offer: PairLossOffer) -> Iterator[list[tinker.Datum]]:
    """The datums in calls that are one request each, so that no pair is parted. A pair that is larger than a request is
    a call of its own.
    """
    call: list[tinker.Datum] = []
    num_bytes = 0
    for index in range(0, len(data_D), 2):
        pair = data_D[index : index + 2]
        size = sum(_num_bytes(datum) for datum in pair)
        if call and (len(call) + len(pair) > offer.max_datums or num_bytes + size > offer.max_bytes):
            yield call
            call, num_bytes = [], 0
        call += pair
        num_bytes += size
    yield call


def _num_bytes(datum: tinker.Datum) -> int:
    inputs = sum(tensor.to_numpy().nbytes for tensor in datum.loss_fn_inputs.values())
    return _TOKEN_BYTES * datum.model_input.length + inputs


def answer_sums(output: tinker.ForwardBackwardOutput) -> list[float]:
    """Σ w·logprob of each datum: what the first two of its values add up to."""
    return [float(np.sum(each["logprobs"].to_numpy()[:2], dtype=np.float64)) for each in output.loss_fn_outputs]


def token_logprobs(datum: tinker.Datum, fields: Fields) -> NDArray[np.float32] | None:
    """The logprobs of a datum's targets that stand behind their sum; NaN where a target has no weight. None: the
    service was not asked for them.
    """
    is_answer_T = datum.loss_fn_inputs["weights"].to_numpy() != 0
    found = fields["logprobs"].to_numpy()[2:]
    if found.size != np.count_nonzero(is_answer_T):
        return None
    logprobs_T = np.full(is_answer_T.shape, np.nan, dtype=np.float32)
    logprobs_T[is_answer_T] = found
    return logprobs_T
