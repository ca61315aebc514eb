"""`target_prompt_logprobs`: cells to positions and back."""

from typing import Any

import numpy as np
import pytest
from tinker.proto.response_conv import _tensor_data_from_proto
from tinker.types._pydantic_types.tensor_data import TensorData

from cookhouse.errors import InputError
from cookhouse.server.wire.samples import decode_targets, encode_targets


def test_dense_cells_are_asked_row_by_row() -> None:
    """Would catch cells shifted by a row, and -1 sent to the engine as a token."""
    tensor = TensorData(data=[5, -1, 7, 8], dtype="int64", shape=[2, 2])
    targets, layout = decode_targets(tensor, 3)
    assert targets.positions_M.tolist() == [1, 2, 2]
    assert targets.tokens_M.tolist() == [5, 7, 8]
    answer = _tensor_data_from_proto(encode_targets(np.array([-0.5, -1, -2], np.float32), layout))
    assert answer.tolist() == [[-0.5, 0.0], [-1.0, -2.0]]


def test_sparse_cells_keep_their_layout() -> None:
    """Would catch an answer in a layout that the SDK does not pair with the request, and a dense copy of a wide one."""
    tensor = TensorData(
        data=[5, 6, -1],
        dtype="int64",
        shape=[3, 2**31 - 1],
        sparse_crow_indices=[0, 1, 1, 3],
        sparse_col_indices=[4, 0, 2**31 - 2],
    )
    targets, layout = decode_targets(tensor, 4)
    assert targets.positions_M.tolist() == [1, 3]
    answer = _tensor_data_from_proto(encode_targets(np.array([-0.5, -1], np.float32), layout))
    assert answer.shape == tensor.shape
    assert answer.sparse_crow_indices == tensor.sparse_crow_indices
    assert answer.sparse_col_indices == tensor.sparse_col_indices
    assert list(answer.data) == [-0.5, -1.0, 0.0]


def test_a_prompt_of_one_token_has_nothing_to_ask() -> None:
    targets, layout = decode_targets(TensorData(data=[], dtype="int64", shape=[0, 3]), 1)
    assert targets.tokens_M.size == 0
    assert _tensor_data_from_proto(encode_targets(np.zeros(0, np.float32), layout)).shape == [0, 3]


@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": "float32"},
        {"shape": None},
        {"shape": [4]},
        {"shape": [1, 4]},
        {"shape": [2, 3]},
        {"shape": [2, -2]},
        {"shape": [2, 2**70]},
        {"data": [1, 2, 3, -2]},
        {"data": [1, 2, 3, 2**31]},
        {"data": [1, 2, 3, 2**80]},
        {"data": [1, 2, 3, 1.5]},
        {"data": [1, 2, 3, float("inf")]},
        {"data": [1, 2, 3, float("nan")]},
        {"sparse_crow_indices": [0, 2, 4]},
        {"sparse_col_indices": [0, 1, 0, 1]},
        {"sparse_crow_indices": [0, 5, 4], "sparse_col_indices": [0, 1, 0, 1]},
        {"sparse_crow_indices": [0, 2, 2**70], "sparse_col_indices": [0, 1, 0, 1]},
        {"sparse_crow_indices": [0, 2, 4], "sparse_col_indices": [0, 1, 0, 2]},
        {"sparse_crow_indices": [0, 2, 4], "sparse_col_indices": [0, 1, 0, -1]},
        {"sparse_crow_indices": [], "sparse_col_indices": []},
    ],
)
def test_what_is_no_tensor_of_tokens_is_refused(changed: dict[str, Any]) -> None:
    """Would catch an index out of range that reaches NumPy, and numbers too large for its integers."""
    tensor = TensorData(**{"data": [1, 2, 3, 4], "dtype": "int64", "shape": [2, 2], **changed})
    with pytest.raises(InputError, match="target_prompt_logprobs"):
        decode_targets(tensor, 3)
