"""Catches a training request in JSON that is read as another one than in protobuf, or refused without a reason."""

import json
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto

from cookhouse.errors import InputError
from cookhouse.server.refusals import TooLargeError
from cookhouse.server.wire import decode_pass, json_counter, parse_training, read_json_training

MAX_BYTES = 2**20
TARGETS = {"data": [6, 7, 8], "dtype": "int64", "shape": [3]}
WEIGHTS = {"data": [0.1, -1, 0.0], "dtype": "float32", "shape": [3]}
DATUM = {
    "model_input": {"chunks": [{"tokens": [5, 6]}, {"tokens": [7], "type": "encoded_text"}]},
    "loss_fn_inputs": {"target_tokens": TARGETS, "weights": WEIGHTS},
}
SPARSE = {
    "data": [-2.0, 1.5, 0.25],
    "dtype": "float32",
    "shape": [4, 5],
    "sparse_crow_indices": [0, 0, 2, 3, 3],
    "sparse_col_indices": [0, 4, 3],
}


def request(data: Any, *, key: str = "forward_backward_input", **fields: Any) -> dict[str, Any]:
    return {"model_id": "m", "seq_id": 7, key: {"data": data, "loss_fn": "cross_entropy", **fields}}


def decode(content: Any, *, forward_only: bool = False) -> Any:
    training = read_json_training(json.dumps(content).encode(), forward_only=forward_only)
    if training.problem is not None:
        raise training.problem
    return decode_pass(parse_training(training.message), max_bytes=MAX_BYTES)


def datum_with(tensor: dict[str, Any]) -> dict[str, Any]:
    return {**DATUM, "loss_fn_inputs": {"weights": tensor}}


def test_it_is_read_as_in_protobuf() -> None:
    """Would catch a number that is rounded otherwise, and a chunk, a shape, a dtype or an option that is lost."""
    tensors = {
        name: types.TensorData(**tensor)  # type: ignore[arg-type]
        for name, tensor in {"target_tokens": TARGETS, "weights": WEIGHTS, "sparse": SPARSE}.items()
    }
    datum = types.Datum(
        model_input=types.ModelInput(
            chunks=[types.EncodedTextChunk(tokens=[5, 6]), types.EncodedTextChunk(tokens=[7])]
        ),
        loss_fn_inputs=tensors,
    )
    config: dict[str, float | str] = {"beta": 0.1, "mode": "x"}
    content = types.ForwardBackwardInput(data=[datum] * 2, loss_fn="cross_entropy", loss_fn_config=config)
    message = forward_backward_request_to_proto(
        types.ForwardBackwardRequest(forward_backward_input=content, model_id="m", seq_id=7)
    )
    expected = decode_pass(parse_training(message.SerializeToString()), max_bytes=MAX_BYTES)
    sparse = {**DATUM, "loss_fn_inputs": {"target_tokens": TARGETS, "weights": WEIGHTS, "sparse": SPARSE}}
    found = decode(request([sparse] * 2, loss_fn_config=config))
    assert (found.model_id, found.loss_fn, found.loss_fn_config) == ("m", "cross_entropy", expected.loss_fn_config)
    for ours, theirs in zip(found.data_D, expected.data_D, strict=True):
        assert np.array_equal(ours.tokens_T, theirs.tokens_T)
        assert ours.loss_fn_inputs.keys() == theirs.loss_fn_inputs.keys()
        for name, array in theirs.loss_fn_inputs.items():
            assert ours.loss_fn_inputs[name].dtype == array.dtype
            assert np.array_equal(ours.loss_fn_inputs[name], array)


def test_a_forward_pass_is_one() -> None:
    """Would catch a `forward` that leaves a gradient."""
    assert decode(request([DATUM], key="forward_input"), forward_only=True).forward_only
    assert not decode(request([DATUM])).forward_only


def test_what_may_be_absent() -> None:
    """Would catch a default that SDKs before 0.18 leave out, and 0 in place of a number that is not there."""
    content = request([{**DATUM, "loss_fn_inputs": {"target_tokens": {"data": [6, 7, 8], "dtype": "int64"}}}])
    assert decode(content).data_D[0].loss_fn_inputs["target_tokens"].shape == (3,)
    assert read_json_training(json.dumps(content).encode(), forward_only=False).has_seq_id
    del content["seq_id"]
    assert not read_json_training(json.dumps(content).encode(), forward_only=False).has_seq_id


def test_an_image_is_told_by_its_fields() -> None:
    """Would catch one of the oldest SDKs, whose images have a number of tokens, that is taken for text."""
    image = {"data": "aGk=", "format": "png", "height": 2, "width": 2, "tokens": 4}
    for chunk in (image, {"type": "image", "data": "aGk=", "format": "png", "expected_tokens": 4}):
        with pytest.raises(InputError, match="datum 0: chunks of type image are not supported"):
            decode(request([{**DATUM, "model_input": {"chunks": [chunk]}}]))


WRONG: dict[str, tuple[Any, str]] = {
    "NaN": (datum_with({**WEIGHTS, "data": [0.0, float("nan"), 1.0]}), "weights holds nan at position 1"),
    "infinity": (datum_with({**WEIGHTS, "data": [0.0, 1.0, float("-inf")]}), "weights holds -inf at position 2"),
    "more than a float32": (datum_with({**WEIGHTS, "data": [1e39, 0, 0]}), "weights holds 1e[+]39 at position 0"),
    "a huge integer": (datum_with({**WEIGHTS, "data": [0, 10**400, 0]}), "weights holds 10+ at position 1"),
    "null": (datum_with({**WEIGHTS, "data": [0, None, 0]}), "weights holds None at position 1"),
    "text": (datum_with({**WEIGHTS, "data": ["1.0", 0, 0]}), "weights holds 1.0 at position 0"),
    "a truth value": (datum_with({**WEIGHTS, "data": [True, 0, 0]}), "weights holds True at position 0"),
    "a list in it": (datum_with({**WEIGHTS, "data": [[1.0], 0, 0]}), "weights holds .* at position 0"),
    "a fraction among integers": (datum_with({**TARGETS, "data": [1, 2.5, 3]}), "integers of 64 bits"),
    "an integer of 65 bits": (datum_with({**TARGETS, "data": [1, 2, 2**63]}), "position 2; .* integers of 64 bits"),
    "a token of 33 bits": ({**DATUM, "model_input": {"chunks": [{"tokens": [2**31]}]}}, "integers of 32 bits"),
    "another dtype": (datum_with({**WEIGHTS, "dtype": "float64"}), "float64; allowed are float32 and int64"),
    "no data": (datum_with({"dtype": "float32"}), "weights is missing; it must be a list"),
    "a shape that does not fit": (datum_with({**WEIGHTS, "shape": [4]}), "has 3 values, but its shape"),
    "a negative shape": (datum_with({**WEIGHTS, "shape": [-3]}), "allowed are one or two dimensions"),
    "half of CSR": (datum_with({**SPARSE, "sparse_col_indices": None}), "column indices of weights is missing"),
    "a bomb of CSR": (datum_with({**SPARSE, "shape": [4, 2**31 - 1]}), "bytes when decoded"),
    "no input": ({"loss_fn_inputs": {}}, "model_input is missing"),
    "no chunks": ({**DATUM, "model_input": {}}, "chunks of model_input is missing"),
    "a chunk of a type that is none": ({**DATUM, "model_input": {"chunks": [{"type": [1]}]}}, "are not supported"),
    "an asset": ({**DATUM, "model_input": {"chunks": [{"location": "x"}]}}, "type image_asset_pointer are not"),
    "no base64": ({**DATUM, "model_input": {"chunks": [{"data": "é", "format": "png"}]}}, "not in base64|ASCII"),
    "no datum": (7, "it is of type int; it must be an object"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_its_place(case: str) -> None:
    """Would catch data that is trained on as something else, and an error that no place in the data is named by."""
    datum, words = WRONG[case]
    with pytest.raises(InputError, match=f"datum 1: .*{words}"):
        decode(request([DATUM, datum]))


@pytest.mark.parametrize("fields", [{"loss_fn": None}, {"data": {}}, {"data": []}, {"loss_fn_config": {"a": [1]}}])
def test_a_request_without_a_model_is_refused_at_once_and_any_other_in_its_turn(fields: dict[str, Any]) -> None:
    """Would catch a 4xx for data, which leaves an SDK waiting for the other chunks of its call."""
    content = request([DATUM])
    content["forward_backward_input"] |= fields
    with pytest.raises(InputError):
        decode(content)
    for name in ("model_id", "forward_backward_input"):
        with pytest.raises(ValidationError, match=name if name == "model_id" else "input"):
            decode({key: value for key, value in content.items() if key != name})


def test_values_are_counted_before_they_are_built() -> None:
    """Would catch a few bytes that become many: numbers take 32 bytes each, and lists more."""
    for body in (b"[" + b"0," * 40_000, b"[" * 2000):
        with pytest.raises(TooLargeError, match="send less at a time"):
            json_counter(2**20).feed(body)
    json_counter(2**20).feed(json.dumps(request([DATUM] * 20)).encode())
