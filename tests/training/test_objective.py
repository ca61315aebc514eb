from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tinker

from cookhouse.training import CrossEntropy, Cursor, Work


def test_loss_is_the_weighted_mean_over_the_whole_batch(datum: Callable[[Sequence[int]], tinker.Datum]) -> None:
    # Catches a mean of means: the two datums have 1 and 3 trained tokens.
    work = Work(cursor=Cursor(), data_D=[datum([1, 2]), datum([3, 4, 5, 6])])
    logprobs_D = [[-9.0, -1.0], [-9.0, -2.0, -3.0, -6.0]]
    output = tinker.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord",
        loss_fn_outputs=[
            {"logprobs": tinker.TensorData.from_numpy(np.array(lp, dtype=np.float32))} for lp in logprobs_D
        ],
    )
    metrics = CrossEntropy().finish([(work, output)])
    assert metrics == {"train/loss": 12.0 / 4, "train/num_tokens": 6, "train/num_trained_tokens": 4}


def test_missing_output_is_not_averaged_over(datum: Callable[[Sequence[int]], tinker.Datum]) -> None:
    work = Work(cursor=Cursor(), data_D=[datum([1, 2]), datum([3, 4])])
    output = tinker.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=[])
    with pytest.raises(ValueError, match="zip"):
        CrossEntropy().finish([(work, output)])
