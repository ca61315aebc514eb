"""Catches a result that says in JSON something else than in protobuf."""

import json
import math

import numpy as np
import pytest

from cookhouse.engine.contract import ForwardBackwardOutput, SampledSequence, SampleOutput
from cookhouse.errors import ServiceError
from cookhouse.server.wire import SampleShape, encode_pass, encode_sample, result_to_json

LOGPROBS = np.array([-0.1, -1.5], dtype=np.float32)


def output_of(value: float) -> SampleOutput:
    return SampleOutput(
        request_id="r",
        sequences=[
            SampledSequence(tokens_T=np.array([3, 4], np.int32), logprobs_T=LOGPROBS, is_stopped=True),
            SampledSequence(
                tokens_T=np.array([5], np.int32), logprobs_T=np.array([value], np.float32), is_stopped=False
            ),
        ],
        prompt_logprobs_T=np.array([math.nan, -0.3], np.float32),
        topk_prompt_tokens_TK=np.array([[0, 0], [7, 8]], np.int32),
        topk_prompt_logprobs_TK=np.array([[-99999.0, -99999.0], [-0.3, -2.0]], np.float32),
    )


def test_a_pass() -> None:
    """Would catch a float that is not the same to the bit, and the outputs of datums that are mixed up."""
    wide = np.array([[-0.1, -0.2], [-0.3, -0.4]], np.float32)
    output = ForwardBackwardOutput(logprobs_D=[LOGPROBS, wide], metrics={"loss:sum": 1.5})
    found = json.loads(result_to_json("forward_backward", encode_pass(output)))
    assert (found["loss_fn_output_type"], found["metrics"]) == ("ArrayRecord", {"loss:sum": 1.5})
    first, second = (fields["logprobs"] for fields in found["loss_fn_outputs"])
    assert first == {"data": LOGPROBS.tolist(), "dtype": "float32", "shape": [2]}
    assert second == {"data": wide.ravel().tolist(), "dtype": "float32", "shape": [2, 2]}
    assert np.array_equal(np.float32(first["data"]), LOGPROBS)


def test_a_sample() -> None:
    """Would catch NaN in place of null where a position has no log-probability, which no strict parser reads."""
    found = json.loads(result_to_json("sample", encode_sample(output_of(-2.0), SampleShape())))
    assert [one["stop_reason"] for one in found["sequences"]] == ["stop", "length"]
    assert [one["tokens"] for one in found["sequences"]] == [[3, 4], [5]]
    assert found["sequences"][0]["logprobs"] == LOGPROBS.tolist()
    assert found["prompt_logprobs"] == [None, float(np.float32(-0.3))]
    assert found["topk_prompt_logprobs"] == [None, [[7, float(np.float32(-0.3))], [8, -2.0]]]


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_no_number_that_json_lacks(value: float) -> None:
    bad = ForwardBackwardOutput(logprobs_D=[np.array([value], np.float32)], metrics={"loss:sum": 1.0})
    for kind, message in (
        ("forward_backward", encode_pass(bad)),
        ("sample", encode_sample(output_of(value), SampleShape())),
    ):
        with pytest.raises(ServiceError, match="application/x-protobuf"):
            result_to_json(kind, message)
