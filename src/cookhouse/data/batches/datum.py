"""Examples to the SDK's datums: truncation, the shift by one, images in their places, and the reduction of weights.

Legend: T positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tinker
from numpy.typing import NDArray
from tinker.types import ImageChunk, ModelInputChunk

from cookhouse.errors import InputError

Reduction = Literal["mean", "none"]
"""`mean`: the weights of an example sum to 1, so that long and short answers count alike. `none`: every token does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedImage:
    """An image in a sequence, where it takes as many positions as it has tokens; they hold 0, and weigh nothing."""

    position: int
    chunk: ImageChunk

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.chunk.length


def tokens_and_images(model_input: tinker.ModelInput) -> tuple[NDArray[np.int64], tuple[PlacedImage, ...]]:
    """A sequence as tokens, and what stands where they are of an image. Raises `InputError` on any other chunk."""
    tokens: list[int] = []
    images: list[PlacedImage] = []
    for chunk in model_input.chunks:
        if isinstance(chunk, tinker.EncodedTextChunk):
            tokens += chunk.tokens
        elif isinstance(chunk, ImageChunk):
            images.append(PlacedImage(position=len(tokens), chunk=chunk))
            tokens += [0] * chunk.length
        else:
            raise InputError(f"an example holds a chunk of type {chunk.type}; only text and images can be trained on")
    return np.asarray(tokens, dtype=np.int64), tuple(images)


def truncated_length(length: int, images: Sequence[PlacedImage], max_length: int | None) -> int:
    """Positions left of a sequence that is cut on the right; an image stays whole, and is never the last: nothing would
    be predicted from it.
    """
    kept = length if max_length is None else min(length, max_length)
    for image in reversed(images):
        if image.position < kept <= image.end:
            kept = image.position
    return kept


def model_input_of(
    tokens_T: NDArray[np.int64] | NDArray[np.int32], images: Sequence[PlacedImage] = ()
) -> tinker.ModelInput:
    """The inverse of `tokens_and_images`; images beyond the end of the tokens are left out."""
    chunks: list[ModelInputChunk] = []
    start = 0
    for image in images:
        if image.position >= tokens_T.size:
            break
        if image.position > start:
            chunks.append(tinker.EncodedTextChunk(tokens=tokens_T[start : image.position].tolist()))
        chunks.append(image.chunk)
        start = image.end
    if start < tokens_T.size or not chunks:
        chunks.append(tinker.EncodedTextChunk(tokens=tokens_T[start:].tolist()))
    return tinker.ModelInput(chunks=chunks)


def datum_from_example(
    model_input: tinker.ModelInput, weights: Sequence[float], max_length: int | None, reduction: Reduction
) -> tinker.Datum:
    """The datum that trains an example whose weights are one for each token, not shifted.

    The sequence is cut on the right to `max_length` tokens, before an image that does not fit; then inputs drop the
    last token, targets and weights the first, so that position t of the input predicts target t.

    Raises:
        InputError: fewer than two tokens, lengths that differ, or no trained token is left.
    """
    tokens_T, images = tokens_and_images(model_input)
    weights_T = np.asarray(weights, dtype=np.float32)
    if tokens_T.shape != weights_T.shape:
        raise InputError(f"an example has {tokens_T.size} tokens and {weights_T.size} weights; they must match")
    length = truncated_length(tokens_T.size, images, max_length)
    return shifted_datum(tokens_T[:length], weights_T[:length], reduction, images)


def shifted_datum(
    tokens_T: NDArray[np.int64] | NDArray[np.int32],
    weights_T: NDArray[np.float32],
    reduction: Reduction,
    images: Sequence[PlacedImage] = (),
) -> tinker.Datum:
    """`datum_from_example` on arrays that are cut already."""
    target_weights = weights_T[1:]
    total = float(target_weights.sum())
    if tokens_T.size < 2 or total <= 0:
        raise InputError("an example has no trained token to predict")
    if reduction == "mean":
        target_weights = target_weights / np.float32(total)
    return tinker.Datum(
        model_input=model_input_of(tokens_T[:-1], images),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData.from_numpy(tokens_T[1:].astype(np.int64)),
            "weights": tinker.TensorData.from_numpy(target_weights.astype(np.float32)),
        },
    )
