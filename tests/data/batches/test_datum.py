"""Truncation, shift and weights, by hand."""

import numpy as np
import pytest
import tinker
from tinker.types import ImageChunk

from cookhouse.data import datum_from_example
from cookhouse.data.batches.datum import PlacedImage, model_input_of, tokens_and_images, truncated_length
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


def seen(*parts: list[int] | int) -> tinker.ModelInput:
    """Runs of tokens, and images of so many tokens."""
    chunks = [
        tinker.EncodedTextChunk(tokens=part)
        if isinstance(part, list)
        else ImageChunk(data=b"x", format="png", expected_tokens=part)
        for part in parts
    ]
    return tinker.ModelInput(chunks=list(chunks))


def test_images_keep_their_places_and_targets_theirs() -> None:
    """Catches weights that are shifted by what an image takes."""
    weights = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    datum = datum_from_example(seen([5, 6], 3, [7, 8]), weights, None, "none")
    assert datum.model_input == seen([5, 6], 3, [7])
    assert datum.loss_fn_inputs["target_tokens"].tolist() == [6, 0, 0, 0, 7, 8]
    assert datum.loss_fn_inputs["weights"].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    assert datum.model_input.length == 6


@pytest.mark.parametrize(
    "model_input", [seen([5]), seen(2, [5]), seen([5, 6], 3, 2, [7, 8]), seen([1], 2, [3], 4, [5])]
)
def test_a_sequence_of_images_and_tokens_comes_back(model_input: tinker.ModelInput) -> None:
    tokens_T, images = tokens_and_images(model_input)
    assert tokens_T.size == model_input.length
    assert model_input_of(tokens_T, images) == model_input


@pytest.mark.parametrize(
    ("max_length", "kept"), [(9, 8), (8, 8), (7, 7), (6, 2), (5, 2), (3, 2), (2, 2), (1, 1), (None, 8)]
)
def test_no_image_is_cut_and_none_is_the_last(max_length: int | None, kept: int) -> None:
    _, images = tokens_and_images(seen([5, 6], 3, 1, [7, 8]))
    assert truncated_length(8, images, max_length) == kept


def test_an_image_that_is_cut_off_is_not_sent() -> None:
    datum = datum_from_example(seen([5, 6, 7], 3, [8]), [0.0, 1.0, 1.0, 0, 0, 0, 1.0], 5, "none")
    assert datum.model_input == seen([5, 6])
    assert PlacedImage(position=3, chunk=seen(3).chunks[0]).end == 6  # type: ignore[arg-type]


def test_a_chunk_that_cannot_be_trained_on_is_refused() -> None:
    asset = tinker.types.ImageAssetPointerChunk(format="png", location="x", expected_tokens=2)
    with pytest.raises(InputError, match="a chunk of type image_asset_pointer"):
        datum_from_example(tinker.ModelInput(chunks=[asset]), [0.0, 0.0], None, "none")
