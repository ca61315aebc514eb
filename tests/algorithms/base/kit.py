"""Steps with made-up answers, as the loop hands them to what keeps them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tinker

from cookhouse.training import Work
from cookhouse.weights.checkpoints import Cursor


def datum(tokens: Sequence[int], **inputs: Any) -> tinker.Datum:
    """It predicts each token from those before it; `inputs` are one value for each target, ones as weights else."""
    targets = np.asarray(tokens[1:], dtype=np.int64)
    arrays: dict[str, Any] = {name: np.asarray(values, dtype=np.float32) for name, values in inputs.items()}
    arrays = arrays or {"weights": np.ones(targets.size, dtype=np.float32)}
    arrays = {"target_tokens": targets, **arrays}
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(tokens[:-1])),
        loss_fn_inputs={name: tinker.TensorData.from_numpy(array) for name, array in arrays.items()},
    )


def answered(
    data_D: Sequence[tinker.Datum],
    logprobs_D: Sequence[Sequence[float]] | None = None,
    *,
    payload: Any = None,
    labels: Sequence[str] = (),
) -> tuple[Work[Any], tinker.ForwardBackwardOutput]:
    """A piece of a step with its answer; by default the logprob of target t is −t."""
    if logprobs_D is None:
        logprobs_D = [[-float(t) for t in range(datum.model_input.length)] for datum in data_D]
    fields = [
        {"logprobs": tinker.TensorData.from_numpy(np.asarray(logprobs, dtype=np.float32))} for logprobs in logprobs_D
    ]
    output = tinker.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=fields, metrics={})
    return Work(cursor=Cursor(), data_D=data_D, payload=payload, labels=labels), output
