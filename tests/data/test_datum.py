"""Truncation, shift and weights, by hand."""

import numpy as np
import pytest
import tinker

from cookhouse.data import datum_from_example
from cookhouse.errors import InputError


def fields(datum: tinker.Datum) -> tuple[list[int], list[int], list[float]]:
    inputs = datum.loss_fn_inputs
    return datum.model_input.to_ints(), inputs["target_tokens"].tolist(), inputs["weights"].tolist()


TOKENS = tinker.ModelInput.from_ints([5, 6, 7, 8, 9])
WEIGHTS = [0.0, 0.0, 1.0, 1.0, 1.0]


def test_inputs_drop_the_last_token_and_targets_the_first() -> None:
    datum = datum_from_example(TOKENS, WEIGHTS, None, "none")
    assert fields(datum) == ([5, 6, 7, 8], [6, 7, 8, 9], [0.0, 1.0, 1.0, 1.0])
    assert datum.loss_fn_inputs["target_tokens"].dtype == "int64"
    assert datum.loss_fn_inputs["weights"].dtype == "float32"


def test_a_long_example_loses_its_end_before_the_shift() -> None:
    assert fields(datum_from_example(TOKENS, WEIGHTS, 3, "none")) == ([5, 6], [6, 7], [0.0, 1.0])


def test_the_mean_is_over_the_trained_tokens_that_are_left() -> None:
    assert fields(datum_from_example(TOKENS, WEIGHTS, 4, "mean"))[2] == [0.0, 0.5, 0.5]
    weights = np.array(fields(datum_from_example(TOKENS, [0.0, 3.0, 1.0, 0.0, 0.0], None, "mean"))[2])
    assert weights.tolist() == [0.75, 0.25, 0.0, 0.0]


@pytest.mark.parametrize(
    ("weights", "max_length"),
    [([0.0] * 5, None), ([1.0, 0.0, 0.0, 0.0, 0.0], None), (WEIGHTS, 2), (WEIGHTS, 1)],
)
def test_nothing_to_predict_is_refused(weights: list[float], max_length: int | None) -> None:
    with pytest.raises(InputError, match="no trained token"):
        datum_from_example(TOKENS, weights, max_length, "mean")


def test_weights_that_do_not_match_are_refused() -> None:
    with pytest.raises(InputError, match="5 tokens and 4 weights"):
        datum_from_example(TOKENS, [1.0] * 4, None, "none")
