"""Mean NLL and bits per byte, with a client that knows the answers."""

import math
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import tinker

from cookhouse.data import Example
from cookhouse.errors import InputError
from cookhouse.evals import NLLEvaluator
from cookhouse.evals.scores import standard_error
from cookhouse.models.tokenizers import get_tokenizer

pytestmark = pytest.mark.anyio


class Client:
    """Gives position t of every datum logprob −(t + 1), and records what was submitted and awaited."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def forward(self, data: list[tinker.Datum], loss_fn: str) -> "Future":
        self.calls.append(f"submit {loss_fn} {len(data)}")
        outputs = []
        for datum in data:
            logprobs = -np.arange(1, datum.model_input.length + 1, dtype=np.float32)
            outputs.append({"logprobs": tinker.TensorData.from_numpy(logprobs)})
        return Future(self, tinker.ForwardBackwardOutput(loss_fn_output_type="", loss_fn_outputs=outputs, metrics={}))


class Future:
    def __init__(self, client: Client, output: tinker.ForwardBackwardOutput) -> None:
        self._client = client
        self._output = output

    def __await__(self) -> Generator[Any, None, tinker.ForwardBackwardOutput]:
        self._client.calls.append("await")
        yield from ()
        return self._output


def example(text: str, weights: list[float]) -> Example:
    tokens = get_tokenizer("cookhouse/tiny").encode(text)
    assert len(tokens) == len(weights)
    return Example(
        tokens_T=np.array(tokens, dtype=np.int32),
        weights_T=np.array(weights, dtype=np.float32),
        source="f:1",
        num_cut_tokens=0,
    )


def evaluator(examples: list[Example], **options: Any) -> NLLEvaluator:
    return NLLEvaluator(examples, get_tokenizer("cookhouse/tiny"), **options)


async def test_the_mean_is_over_trained_tokens_and_bytes_over_their_text() -> None:
    # Targets at positions 1..3 with logprobs -1, -2, -3; the last two are trained, one is an end mark without bytes.
    examples = [example("1 2<|im_end|>", [0.0, 0.0, 1.0, 1.0]), example("7<|im_end|>", [0.0, 1.0])]
    metrics = await evaluator(examples)(Client())
    assert metrics["nll"] == pytest.approx((2 + 3 + 1) / 3)
    assert metrics["nll_tokens"] == 3
    assert metrics["bits_per_byte"] == pytest.approx((2 + 3 + 1) / math.log(2) / len("2"))


async def test_the_error_is_of_examples_whose_tokens_go_together() -> None:
    # Catches an error over tokens, as if each were drawn by itself, which is too small.
    examples = [example("1 2<|im_end|>", [0.0, 0.0, 1.0, 1.0]), example("7<|im_end|>", [0.0, 1.0])]
    metrics = await evaluator(examples)(Client())
    # Sums 5 and 1 of 2 and 1 tokens; mean 2, so 1 above and 1 below.
    assert metrics["nll_stderr"] == pytest.approx(math.sqrt(2 / 1 * (1 + 1)) / 3)
    equal_lengths = [example("7<|im_end|>", [0.0, 1.0]), example("1 2<|im_end|>", [0.0, 0.0, 0.0, 1.0])]
    metrics = await evaluator(equal_lengths)(Client())
    assert metrics["nll_stderr"] == pytest.approx(standard_error([1.0, 3.0]))
    assert (await evaluator(examples[:1])(Client()))["nll_stderr"] is None


async def test_weights_weigh_the_mean_but_not_the_bits() -> None:
    metrics = await evaluator([example("1 2<|im_end|>", [0.0, 0.0, 0.5, 1.0])])(Client())
    assert metrics["nll"] == pytest.approx((0.5 * 2 + 3) / 1.5)
    assert metrics["bits_per_byte"] == pytest.approx((2 + 3) / math.log(2))


async def test_a_first_token_is_predicted_by_nothing_and_counts_no_bytes() -> None:
    metrics = await evaluator([example("7 2<|im_end|>", [1.0, 1.0, 1.0, 1.0])])(Client())
    assert metrics["nll_tokens"] == 3
    assert metrics["bits_per_byte"] == pytest.approx((1 + 2 + 3) / math.log(2) / len(" 2"))


async def test_all_chunks_are_submitted_before_the_first_is_awaited() -> None:
    client = Client()
    await evaluator([example("7<|im_end|>", [0.0, 1.0])] * 5, chunk_size=2)(client)
    submits = ["submit cross_entropy 2", "submit cross_entropy 2", "submit cross_entropy 1"]
    assert client.calls == [*submits, "await", "await", "await"]


async def test_text_of_no_bytes_has_no_bits_per_byte() -> None:
    metrics = await evaluator([example("7<|im_end|>", [0.0, 1.0])])(Client())
    assert metrics["bits_per_byte"] is None


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(InputError, match="no held-out example with a trained token"):
        evaluator([example("7<|im_end|>", [1.0, 0.0])])
