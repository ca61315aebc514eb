"""Results of passes and samples in JSON, for clients that do not accept protobuf: SDKs before 0.18, and plain HTTP."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tinker import types
from tinker.proto.response_conv import deserialize_forward_backward_output, deserialize_sample_response

from cookhouse.errors import ServiceError


def result_to_json(kind: str, message: bytes) -> bytes:
    """The result of a request of a kind, `forward_backward` or `sample`, of which `message` is the protobuf form.

    Raises:
        ServiceError: it holds a number that JSON does not have.
    """
    try:
        return json.dumps(_ENCODERS[kind](message), allow_nan=False, separators=(",", ":")).encode()
    except ValueError as error:
        raise ServiceError(
            "the result holds NaN or infinity, which JSON does not have; ask for it with Accept: "
            "application/x-protobuf, as the SDK does from 0.18 on"
        ) from error


def _pass(message: bytes) -> Mapping[str, Any]:
    output = deserialize_forward_backward_output(message)
    outputs = [{name: _tensor(tensor) for name, tensor in fields.items()} for fields in output.loss_fn_outputs]
    return {
        "loss_fn_output_type": output.loss_fn_output_type,
        "loss_fn_outputs": outputs,
        "metrics": output.metrics,
    }


def _sample(message: bytes) -> Mapping[str, Any]:
    response = deserialize_sample_response(message)
    content: dict[str, Any] = {
        "type": "sample",
        "sequences": [_sequence(one) for one in response.sequences],
        "prompt_cache_hit_tokens": response.prompt_cache_hit_tokens,
    }
    if response.prompt_logprobs is not None:
        content["prompt_logprobs"] = response.prompt_logprobs
    if response.topk_prompt_logprobs is not None:
        content["topk_prompt_logprobs"] = response.topk_prompt_logprobs
    if response.target_prompt_logprobs is not None:
        content["target_prompt_logprobs"] = _tensor(response.target_prompt_logprobs)
    return content


def _sequence(sequence: types.SampledSequence) -> Mapping[str, Any]:
    content = {"stop_reason": sequence.stop_reason, "tokens": sequence.tokens, "logprobs": sequence.logprobs}
    return content if sequence.topk_logprobs is None else {**content, "topk_logprobs": sequence.topk_logprobs}


def _tensor(tensor: types.TensorData) -> Mapping[str, Any]:
    content = {"data": tensor.data, "dtype": tensor.dtype, "shape": tensor.shape}
    if tensor.sparse_crow_indices is None:
        return content
    return {
        **content,
        "sparse_crow_indices": tensor.sparse_crow_indices,
        "sparse_col_indices": tensor.sparse_col_indices,
    }


_ENCODERS: Mapping[str, Callable[[bytes], Mapping[str, Any]]] = {"forward_backward": _pass, "sample": _sample}
