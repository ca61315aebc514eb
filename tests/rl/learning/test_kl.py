"""Figures of divergence and the penalty, by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
import tinker

from cookhouse.errors import InputError
from cookhouse.rl import clip_metrics, kl_metrics, kl_penalty, sampling_metrics


def datum_of(mask: Sequence[float], logprobs: Sequence[float], advantages: Sequence[float]) -> tinker.Datum:
    def floats(values: Sequence[float]) -> tinker.TensorData:
        return tinker.TensorData.from_numpy(np.asarray(values, dtype=np.float32))

    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(range(len(mask)))),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData.from_numpy(np.arange(len(mask), dtype=np.int64)),
            "logprobs": floats(logprobs),
            "advantages": floats(advantages),
            "mask": floats(mask),
        },
    )


DATA = [datum_of([0, 1, 1, 0, 1], [0, -1.0, -2.0, 0, -0.5], [0, 1, 1, 0, 1]), datum_of([1], [-1.5], [-2])]
OTHER = [[9.0, -1.25, -2.0, float("nan"), -1.0], [-1.0]]
"""Under other weights: d = 0.25, 0, 0.5, −0.5 where it counts, and garbage where it does not."""


def test_figures_by_hand() -> None:
    assert sampling_metrics(DATA) == {"optim/entropy": 5.0 / 4}
    assert kl_metrics(DATA, OTHER) == {
        "optim/kl_sample_train_v1": 0.25 / 4,
        "optim/kl_sample_train_v2": 0.5 * (0.0625 + 0.25 + 0.25) / 4,
    }
    assert set(kl_metrics(DATA, OTHER, suffix="_post")) == {
        "optim/kl_sample_train_v1_post",
        "optim/kl_sample_train_v2_post",
    }


def test_the_same_weights_have_no_divergence() -> None:
    own = [datum.loss_fn_inputs["logprobs"].to_numpy() for datum in DATA]
    assert kl_metrics(DATA, own) == {"optim/kl_sample_train_v1": 0.0, "optim/kl_sample_train_v2": 0.0}
    assert clip_metrics(DATA, own, low=0.8, high=1.2) == {"optim/clip_frac": 0.0}


def test_clipping_by_hand() -> None:
    # Ratios exp(−d): 0.78, 1, 0.61, 1.65.
    assert clip_metrics(DATA, OTHER, low=0.8, high=1.2) == {"optim/clip_frac": 3 / 4}
    assert clip_metrics(DATA, OTHER, low=0.7, high=1.2) == {"optim/clip_frac": 2 / 4}
    assert clip_metrics(DATA, OTHER, low=0.7, high=2.0) == {"optim/clip_frac": 1 / 4}


def test_clipping_of_sequences_by_hand() -> None:
    # Mean d of the first datum 0.25, so ratio 0.78 on its three tokens; of the second −0.5, so 1.65 on its one.
    assert clip_metrics(DATA, OTHER, low=0.7, high=1.2, is_per_datum=True) == {"optim/clip_frac": 1 / 4}
    assert clip_metrics(DATA, OTHER, low=0.8, high=2.0, is_per_datum=True) == {"optim/clip_frac": 3 / 4}
    unsampled = datum_of([0, 0], [0, 0], [0, 0])
    assert clip_metrics([unsampled, *DATA], [[0, 0], *OTHER], low=0.7, high=1.2, is_per_datum=True) == {
        "optim/clip_frac": 1 / 4
    }
    assert clip_metrics([unsampled], [[0, 0]], low=0.7, high=1.2, is_per_datum=True) == {}


def test_nothing_sampled_gives_no_figure() -> None:
    # A mean over nothing would be NaN, or a made-up 0.
    unsampled = [datum_of([0, 0], [0, 0], [0, 0])]
    assert sampling_metrics(unsampled) == {}
    assert kl_metrics(unsampled, [[0, 0]]) == {}
    assert clip_metrics(unsampled, [[0, 0]], low=0.8, high=1.2) == {}


def test_the_penalty_by_hand() -> None:
    # Mean d = 0.0625; coef 2 adds 2 · (0.0625 − d), so −0.375, 0.125, −0.875, 1.125.
    penalized, figures = kl_penalty(DATA, OTHER, coef=2.0)
    assert figures == {"optim/kl_reference": 0.0625}
    assert penalized[0].loss_fn_inputs["advantages"].tolist() == [0, 0.625, 1.125, 0, 0.125]
    assert penalized[1].loss_fn_inputs["advantages"].tolist() == [-0.875]
    assert DATA[1].loss_fn_inputs["advantages"].tolist() == [-2]
    assert penalized[0].loss_fn_inputs["mask"] is DATA[0].loss_fn_inputs["mask"]


def test_the_discounted_penalty_by_hand() -> None:
    # Terms by position 0, −0.375, 0.125, 0, −0.875 with γ 0.5: the last reaches two positions back through the
    # observation at half a half, and the observation itself keeps no advantage.
    penalized, _ = kl_penalty(DATA, OTHER, coef=2.0, gamma=0.5)
    at_2 = 0.125 + 0.25 * -0.875
    expected = [0, 1 + -0.375 + 0.5 * at_2, 1 + at_2, 0, 1 - 0.875]
    assert penalized[0].loss_fn_inputs["advantages"].tolist() == expected


def test_the_penalty_without_a_baseline_by_hand() -> None:
    # REINFORCE++: less 2 · Σ d of this token and those after it; d is 0.25, 0, 0.5 and, in the other datum, −0.5.
    penalized, figures = kl_penalty(DATA, OTHER, coef=2.0, gamma=1.0, is_centered=False)
    assert penalized[0].loss_fn_inputs["advantages"].tolist() == [0, 1 - 2 * 0.75, 1 - 2 * 0.5, 0, 1 - 2 * 0.5]
    assert penalized[1].loss_fn_inputs["advantages"].tolist() == [-2 + 2 * 0.5]
    assert figures == {"optim/kl_reference": 0.0625}


def test_penalties_sum_to_zero() -> None:
    # Only the difference between tokens may push; a sum would be a reward for length.
    penalized, _ = kl_penalty(DATA, OTHER, coef=3.0)
    before, after = (
        sum(sum(datum.loss_fn_inputs["advantages"].tolist()) for datum in data) for data in (DATA, penalized)
    )
    assert after == pytest.approx(before, abs=1e-6)


def test_logprobs_that_do_not_match_are_refused() -> None:
    with pytest.raises(InputError, match="2 datums and logprobs of 1"):
        kl_metrics(DATA, OTHER[:1])
    with pytest.raises(InputError, match="datum 1 has 1 targets and 2 logprobs"):
        kl_metrics(DATA, [OTHER[0], [1.0, 2.0]])


def test_where_nothing_was_sampled_nothing_is_penalized_and_no_figure_is_made_up() -> None:
    unsampled = [datum_of([0], [0], [0])]
    assert kl_penalty(unsampled, [[0]], coef=1.0) == (unsampled, {})
