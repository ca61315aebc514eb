"""Training requests in JSON, which SDKs before 0.25 send, written as the protobuf message that the newer ones send.

    {"forward_backward_input": {"data": [datum], "loss_fn": "cross_entropy", "loss_fn_config": {}},
     "model_id": "S:train:0", "seq_id": 1}
    datum   {"model_input": {"chunks": [chunk]}, "loss_fn_inputs": {"target_tokens": tensor}}
    chunk   {"tokens": [5, 6]}, with or without its `type`
    tensor  {"data": [1.0], "dtype": "float32", "shape": [1]}; of sparse CSR, with `sparse_crow_indices` and
            `sparse_col_indices`

`forward` has `forward_input` in place of `forward_backward_input`.
"""

import base64
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic_core import from_json
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.errors import InputError
from cookhouse.server.wire.fields import ValueCounter

_VALUE_BYTES = 32
"""Of a number in a list, once it is read."""
_CONTAINER_BYTES = 1024
"""Of a list or an object, likewise."""
_DTYPES: Mapping[str, tuple["pb.DType.ValueType", np.dtype[Any]]] = {
    "float32": (pb.DTYPE_FLOAT32, np.dtype("<f4")),
    "int64": (pb.DTYPE_INT64, np.dtype("<i8")),
}
_TOKEN = np.dtype("<i4")
_INDEX = np.dtype("<i8")
_KINDS = {"data": "image", "location": "image_asset_pointer", "tokens": "encoded_text"}
"""Of chunks without a `type`, by a field of theirs: the oldest images have `tokens`, too, which is a number."""


class _Head(BaseModel):
    model_config = ConfigDict(protected_namespaces=())

    model_id: str
    seq_id: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    input: Any = Field(validation_alias=AliasChoices("forward_backward_input", "forward_input"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTraining:
    """A training request that came in JSON."""

    message: bytes
    """As protobuf; without datums where these are wrong."""
    has_seq_id: bool
    """Whether it was numbered: protobuf does not tell 0 from none."""
    problem: InputError | None
    """What is wrong with its input."""


def json_counter(max_bytes: int) -> ValueCounter:
    """Counts the values of a body whose lists are to take at most so many bytes."""
    return ValueCounter(max_containers=max_bytes // _CONTAINER_BYTES, max_values=max_bytes // _VALUE_BYTES)


def read_json_training(body: bytes | bytearray, *, forward_only: bool) -> JsonTraining:
    """Read a body whose values have been counted.

    Raises:
        InputError: it is no JSON.
        pydantic.ValidationError: it does not say for which model it is.
    """
    try:
        content = from_json(body)
    except ValueError as error:
        raise InputError(f"the body is not valid JSON: {error}") from error
    head = _Head.model_validate(content)
    message = pb.ForwardBackwardRequest(model_id=head.model_id, seq_id=head.seq_id or 0, forward_only=forward_only)
    bare, problem = message.SerializeToString(), None
    try:
        _add_input(message, head.input)
        whole = message.SerializeToString()
    except InputError as error:
        whole, problem = bare, error
    return JsonTraining(message=whole, has_seq_id=head.seq_id is not None, problem=problem)


def _add_input(message: pb.ForwardBackwardRequest, content: Any) -> None:
    fields = _object(content, "the input")
    message.loss_fn = _text(fields.get("loss_fn"), "loss_fn")
    for name, value in _object(fields.get("loss_fn_config") or {}, "loss_fn_config").items():
        if isinstance(value, str):
            message.loss_fn_config_v2[name].text = value
        else:
            message.loss_fn_config_v2[name].number = float(_numbers([value], np.dtype("<f8"), name)[0])
    for index, datum in enumerate(_list(fields.get("data"), "data")):
        try:
            _add_datum(message.data.add(), datum)
        except InputError as error:
            raise InputError(f"datum {index}: {error}") from error


def _add_datum(message: pb.Datum, content: Any) -> None:
    datum = _object(content, "it")
    model_input = _object(datum.get("model_input"), "model_input")
    for chunk in _list(model_input.get("chunks"), "chunks of model_input"):
        _add_chunk(message.model_input.add(), _object(chunk, "a chunk"))
    for name, tensor in _object(datum.get("loss_fn_inputs"), "loss_fn_inputs").items():
        _add_tensor(message.loss_fn_inputs[name], _object(tensor, name), name)


def _add_chunk(message: pb.Chunk, chunk: Mapping[str, Any]) -> None:
    kind = chunk.get("type") or next((kind for field, kind in _KINDS.items() if field in chunk), None)
    if kind == "encoded_text":
        message.encoded_text.tokens = _numbers(chunk.get("tokens"), _TOKEN, "the tokens of model_input").tobytes()
    elif kind == "image":
        message.image.format = _text(chunk.get("format"), "format of an image")
        try:
            message.image.data = base64.b64decode(_text(chunk.get("data"), "data of an image"), validate=True)
        except ValueError as error:
            raise InputError(f"the data of an image is not in base64: {error}") from error
    else:
        raise InputError(f"chunks of type {str(kind)[:40]} are not supported by this server; send encoded_text")


def _add_tensor(message: pb.Tensor, tensor: Mapping[str, Any], name: str) -> None:
    dtype = tensor.get("dtype")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise InputError(f"{name} has data type {str(dtype)[:40]}; allowed are {' and '.join(_DTYPES)}")
    message.dtype, number = _DTYPES[dtype]
    message.shape.extend(_numbers(tensor.get("shape") or [], _INDEX, f"the shape of {name}").tolist())
    values = _numbers(tensor.get("data"), number, name).tobytes()
    row_starts, columns = tensor.get("sparse_crow_indices"), tensor.get("sparse_col_indices")
    if row_starts is None and columns is None:
        message.dense = values
        return
    message.sparse_csr.values = values
    message.sparse_csr.crow_indices = _numbers(row_starts, _INDEX, f"the row indices of {name}").tobytes()
    message.sparse_csr.col_indices = _numbers(columns, _INDEX, f"the column indices of {name}").tobytes()


def _numbers(content: Any, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Finite numbers, each within the range of the data type."""
    values = _list(content, name)
    is_whole = dtype.kind == "i"
    types = {int} if is_whole else {int, float}
    if not set(map(type, values)) <= types:
        at = next(index for index, value in enumerate(values) if type(value) not in types)
        raise InputError(f"{name} holds {str(values[at])[:40]} at position {at}; it must hold {_allowed(dtype)}")
    most = np.iinfo(dtype).max if is_whole else sys.float_info.max
    if not all(-most - 1 <= value <= most for value in values):  # which NaN is not, either
        at = next(index for index, value in enumerate(values) if not -most - 1 <= value <= most)
        raise InputError(f"{name} holds {str(values[at])[:40]} at position {at}; it must hold {_allowed(dtype)}")
    with np.errstate(over="ignore"):  # of a number that float32 has no room for
        array = np.array(values, dtype)
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise InputError(f"{name} holds {values[bad[0]]} at position {bad[0]}; it must hold {_allowed(dtype)}")
    return array


def _allowed(dtype: np.dtype[Any]) -> str:
    return f"{'integers' if dtype.kind == 'i' else 'finite numbers'} of {8 * dtype.itemsize} bits"


def _object(content: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise _wrong(name, "an object", content)
    return content


def _list(content: Any, name: str) -> list[Any]:
    if not isinstance(content, list):
        raise _wrong(name, "a list", content)
    return content


def _text(content: Any, name: str) -> str:
    if not isinstance(content, str):
        raise _wrong(name, "text", content)
    return content


def _wrong(name: str, kind: str, found: Any) -> InputError:
    what = "missing" if found is None else f"of type {type(found).__name__}"
    return InputError(f"{name} is {what}; it must be {kind}")
