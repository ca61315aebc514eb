"""`target_prompt_logprobs` of a sampling request: a tensor of token ids, and one of log-probabilities in its layout.

Cell (t, k) of the tensor, T - 1 rows for a prompt of T tokens, asks about prompt position t + 1; a cell of -1, or one
that a sparse tensor does not list, asks nothing.

Legend: C listed cells, M those that ask, T prompt positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tinker.proto import tinker_public_pb2 as pb
from tinker.types._pydantic_types.tensor_data import TensorData

from cookhouse.engine.contract import PromptTargets
from cookhouse.errors import InputError

_NAME = "target_prompt_logprobs"
_NOTHING = -1
_INT32_END = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLayout:
    """Layout of the answer, which is that of the request."""

    shape: tuple[int, int]
    asks_C: NDArray[np.bool_]
    row_starts: NDArray[np.int64] | None
    """None: dense, so that every cell is listed."""
    columns_C: NDArray[np.int64] | None


def decode_targets(tensor: TensorData, num_prompt: int) -> tuple[PromptTargets, TargetLayout]:
    """Decode the targets for the engine. Whether the tokens are in the vocabulary is for the engine to say.

    Raises:
        InputError: it is no int64 tensor of `num_prompt` - 1 rows, dense or sparse CSR, of tokens or -1.
    """
    shape = tuple(tensor.shape or ())
    if tensor.dtype != "int64" or len(shape) != 2 or shape[0] != num_prompt - 1 or not 0 <= shape[1] < _INT32_END:
        raise InputError(
            f"{_NAME} has data type {tensor.dtype} and shape {list(shape)}; it must be int64, with "
            f"{num_prompt - 1} rows, one less than the prompt has tokens"
        )
    tokens_C = _integers(tensor.data, _NOTHING, "tokens")
    row_starts, columns_C = _sparse_layout(tensor, len(tokens_C), shape[1])
    if row_starts is None:
        if len(tokens_C) != shape[0] * shape[1]:
            raise InputError(f"{_NAME} has {len(tokens_C)} values, but its shape {list(shape)} needs more or fewer")
        rows_C = np.repeat(np.arange(shape[0]), shape[1])
    else:
        rows_C = np.repeat(np.arange(shape[0]), np.diff(row_starts))
    asks_C = tokens_C != _NOTHING
    targets = PromptTargets(positions_M=rows_C[asks_C] + 1, tokens_M=tokens_C[asks_C])
    return targets, TargetLayout(shape=(shape[0], shape[1]), asks_C=asks_C, row_starts=row_starts, columns_C=columns_C)


def encode_targets(logprobs_M: NDArray[np.float32], layout: TargetLayout) -> pb.Tensor:
    """The answer, 0 in cells that ask nothing."""
    values_C = np.zeros(len(layout.asks_C), dtype="<f4")
    values_C[layout.asks_C] = logprobs_M
    message = pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=layout.shape)
    if layout.row_starts is None or layout.columns_C is None:
        message.dense = values_C.tobytes()
        return message
    message.sparse_csr.values = values_C.tobytes()
    message.sparse_csr.crow_indices = layout.row_starts.astype("<i8").tobytes()
    message.sparse_csr.col_indices = layout.columns_C.astype("<i8").tobytes()
    return message


def _sparse_layout(
    tensor: TensorData, num_cells: int, num_columns: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Row starts and columns of a sparse tensor; None and None of a dense one."""
    if tensor.sparse_crow_indices is None and tensor.sparse_col_indices is None:
        return None, None
    row_starts = _integers(tensor.sparse_crow_indices or (), 0, "row starts")
    columns_C = _integers(tensor.sparse_col_indices or (), 0, "columns")
    num_rows = (tensor.shape or [0])[0]
    if (
        len(row_starts) != num_rows + 1
        or row_starts[0] != 0
        or row_starts[-1] != num_cells
        or (np.diff(row_starts) < 0).any()
        or len(columns_C) != num_cells
        or (columns_C >= num_columns).any()
    ):
        raise InputError(f"{_NAME} is not a valid sparse CSR tensor of shape {tensor.shape}")
    return row_starts, columns_C


def _integers(values: Sequence[int | float], lowest: int, what: str) -> NDArray[np.int64]:
    """An array of numbers that JSON may have as anything: fractions, or integers of any size."""
    bad = next((value for value in values if not (lowest <= value < _INT32_END and value == int(value))), None)
    if bad is not None:
        raise InputError(f"the {what} of {_NAME} hold {bad}; allowed are {lowest} to {_INT32_END - 1}")
    return np.array(values, dtype=np.int64)
