"""Tensors and token chunks of the wire's protobuf messages, as NumPy arrays of their own memory."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.errors import InputError

_DTYPES: dict[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
}
_TOKEN_DTYPE = np.dtype("<i4")
_MAX_LENGTH = 2**31
_OBJECT_BYTES = 1024
"""Bytes that a chunk, a tensor or a datum takes besides its values, and its time; on the wire an empty one takes two
bytes.
"""


class Allowance:
    """Bytes that one request may still take once decoded: sparse shapes and empty datums are free to write and dear to
    hold.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left_bytes = max_bytes

    def take(self, num_bytes: int) -> None:
        self._left_bytes -= num_bytes
        if self._left_bytes < 0:
            raise InputError(
                f"the request's tensors are over {self._max_bytes} bytes when decoded; send fewer datums at a time, "
                "or check their shapes"
            )

    def take_object(self) -> None:
        self.take(_OBJECT_BYTES)


def decode_tokens(chunks: Any, budget: Allowance) -> NDArray[np.int64]:
    """The tokens of a datum's chunks in one int64 array."""
    parts = []
    for chunk in chunks:
        budget.take_object()
        kind = chunk.WhichOneof("chunk")
        if kind != "encoded_text":
            raise InputError(f"chunks of type {kind or 'none'} are not supported by this server; send encoded_text")
        parts.append(_flat(chunk.encoded_text.tokens, _TOKEN_DTYPE, "the tokens of model_input"))
    num_tokens = sum(part.size for part in parts)
    budget.take(8 * num_tokens)
    tokens = np.empty(num_tokens, dtype=np.int64)
    if parts:
        np.concatenate(parts, out=tokens)
    return tokens


def decode_tensor(tensor: pb.Tensor, name: str, budget: Allowance) -> NDArray[Any]:
    """A dense float32 or int64 array in the tensor's shape; unlisted cells of a sparse one are 0."""
    budget.take_object()
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise InputError(f"{name} has data type {tensor.dtype}; allowed are float32 (1) and int64 (2)")
    shape = tuple(tensor.shape)
    if len(shape) > 2 or any(not 0 <= length < _MAX_LENGTH for length in shape):
        raise InputError(f"{name} has shape {list(shape)}; allowed are one or two dimensions, each below {_MAX_LENGTH}")
    if tensor.WhichOneof("encoding") == "sparse_csr":
        return _dense_from_csr(tensor.sparse_csr, dtype, shape, name, budget)
    values = _flat(tensor.dense, dtype, name)
    budget.take(values.nbytes)
    if shape and math.prod(shape) != values.size:
        raise InputError(f"{name} has {values.size} values, but its shape {list(shape)} needs {math.prod(shape)}")
    return (values.reshape(shape) if shape else values).astype(dtype.newbyteorder("="))


def _dense_from_csr(
    csr: pb.SparseCsr, dtype: np.dtype[Any], shape: tuple[int, ...], name: str, budget: Allowance
) -> NDArray[Any]:
    if len(shape) != 2:
        raise InputError(f"{name} is sparse, but its shape {list(shape)} has not two dimensions")
    num_rows, num_columns = shape
    values = _flat(csr.values, dtype, name)
    row_starts = _flat(csr.crow_indices, np.dtype("<i8"), f"the row indices of {name}")
    columns = _flat(csr.col_indices, np.dtype("<i8"), f"the column indices of {name}")
    if (
        row_starts.size != num_rows + 1
        or columns.size != values.size
        or row_starts[0] != 0
        or row_starts[-1] != values.size
        or (row_starts[1:] < row_starts[:-1]).any()  # compared, since hostile differences would overflow
        or (columns < 0).any()
        or (columns >= num_columns).any()
    ):
        raise InputError(f"{name} is not a valid sparse CSR tensor of shape {list(shape)}")
    budget.take(dtype.itemsize * num_rows * num_columns)
    dense = np.zeros(shape, dtype=dtype.newbyteorder("="))
    dense[np.repeat(np.arange(num_rows), np.diff(row_starts)), columns] = values
    return dense


def _flat(data: bytes, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    if len(data) % dtype.itemsize:
        raise InputError(f"{name}: {len(data)} bytes are not a whole number of {dtype.itemsize}-byte values")
    return np.frombuffer(data, dtype=dtype)
