"""Negative log-likelihood of held-out examples.

Legend: T positions.
"""

import math
from collections.abc import Sequence

import numpy as np
import tinker

from cookhouse.chat import Tokenizer
from cookhouse.data import Example, shifted_datum
from cookhouse.errors import InputError
from cookhouse.evals.evaluator import ForwardClient, Metrics, TrainingClientEvaluator
from cookhouse.evals.scores import weighted_mean

_CHUNK = 64


class NLLEvaluator(TrainingClientEvaluator):
    """Mean NLL of the trained tokens of examples, in nats per token, and bits per byte of the text they spell.

    The mean is −Σ w·lp / Σ w over all tokens of all examples. Bits per byte sums the NLL of every token with weight,
    end marks included, over the bytes of their text, in which end marks have none. Only `forward` is called, so no
    gradient is left; all chunks are submitted before the first is awaited.

    Raises:
        InputError: there are no examples with a trained token.
    """

    def __init__(self, examples: Sequence[Example], tokenizer: Tokenizer, *, chunk_size: int = _CHUNK) -> None:
        kept = [example for example in examples if example.num_trained_tokens]
        if not kept:
            raise InputError("there is no held-out example with a trained token to measure")
        self._data = [_datum(example) for example in kept]
        self._num_bytes = sum(_num_trained_bytes(example, tokenizer) for example in kept)
        self._chunk_size = chunk_size

    @property
    def longest_tokens(self) -> int:
        """Of an example."""
        return 1 + max(datum.model_input.length for datum in self._data)

    async def __call__(self, client: ForwardClient) -> Metrics:
        """`nll` (nats per token) with `nll_stderr`, its standard error (None of one example), `bits_per_byte` (None
        without text) and `nll_tokens`, the number measured.
        """
        chunks = [self._data[i : i + self._chunk_size] for i in range(0, len(self._data), self._chunk_size)]
        futures = [client.forward(chunk, "cross_entropy") for chunk in chunks]
        losses, weights = [], []
        nats, num_tokens = 0.0, 0
        for chunk, future in zip(chunks, futures, strict=True):
            output = await future
            for datum, fields in zip(chunk, output.loss_fn_outputs, strict=True):
                logprobs_T = fields["logprobs"].to_numpy().astype(np.float64)
                weights_T = datum.loss_fn_inputs["weights"].to_numpy().astype(np.float64)
                losses.append(-float(logprobs_T @ weights_T))
                weights.append(float(weights_T.sum()))
                nats -= float(logprobs_T[weights_T != 0].sum())
                num_tokens += int(np.count_nonzero(weights_T))
        bits_per_byte = nats / math.log(2) / self._num_bytes if self._num_bytes else None
        nll, stderr = weighted_mean(losses, weights)
        return {"nll": nll, "nll_stderr": stderr, "bits_per_byte": bits_per_byte, "nll_tokens": float(num_tokens)}


def _datum(example: Example) -> tinker.Datum:
    return shifted_datum(example.tokens_T, example.weights_T, "none", example.images)


def _num_trained_bytes(example: Example, tokenizer: Tokenizer) -> int:
    special = set(tokenizer.all_special_ids)
    is_text_T = (example.weights_T != 0) & ~np.isin(example.tokens_T, list(special))
    is_text_T[0] = False
    num_bytes = 0
    # Span by span: tokens that do not touch may not be decoded together.
    for span in np.split(np.arange(is_text_T.size), np.flatnonzero(np.diff(is_text_T)) + 1):
        if span.size and is_text_T[span[0]]:
            text = tokenizer.decode(example.tokens_T[span].tolist(), clean_up_tokenization_spaces=False)
            num_bytes += len(str(text).encode())
    return num_bytes
