"""Sampling requests and their results. T prompt positions, K candidates per position.

`target_prompt_logprobs` is a tensor of token ids, answered by one of log-probabilities in its layout. Its cell (t, k),
T - 1 rows, asks about prompt position t + 1; one of -1, or one that a sparse tensor does not list, asks nothing. Of
its C listed cells, M ask.
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.types._pydantic_types.tensor_data import TensorData

from cookhouse.engine.contract import PromptTargets, SampleOutput, SampleRequest
from cookhouse.errors import InputError

_NAME = "target_prompt_logprobs"
_NOTHING = -1
_INT32_END = 2**31
_NO_CANDIDATE_LOGPROB = -99999.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleShape:
    """Parts of a result that go to the client, beyond those that the engine was asked for."""

    prompt_logprobs_last_n: int | None = None
    targets: TargetLayout | None = None


def decode_sample(
    request: types.SampleRequest, *, request_id: str, base_model: str, snapshot_id: str | None, owner: str = ""
) -> tuple[SampleRequest, SampleShape]:
    """The engine's request. Whether prompt and lengths fit the model is for the engine to say.

    Raises:
        InputError: a chunk that is not text, a value outside its range, or a feature this server does not have.
    """
    _refuse_unsupported(request)
    params = request.sampling_params
    prompt_T = _decode_prompt(request.prompt)
    if params.max_tokens is not None and params.max_tokens < 1:
        raise InputError(f"max_tokens is {params.max_tokens}; it must be at least 1")
    if not 0 <= params.temperature < math.inf:
        raise InputError(f"temperature is {params.temperature}; it must be finite and at least 0 (0 is greedy)")
    if params.top_k != -1 and params.top_k < 1:
        raise InputError(f"top_k is {params.top_k}; it must be at least 1, or -1 for no limit")
    if not 0 < params.top_p <= 1:
        raise InputError(f"top_p is {params.top_p}; it must be above 0 and at most 1")
    if params.seed is not None and not 0 <= params.seed < 2**64:
        raise InputError(f"seed is {params.seed}; it must be an unsigned 64-bit number")
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs"):
        if getattr(request, name) < 0:
            raise InputError(f"{name} is {getattr(request, name)}; it must be at least 0")
    last_n = request.prompt_logprobs_last_n
    if last_n is not None and not (request.prompt_logprobs and 1 <= last_n < len(prompt_T)):
        raise InputError(
            f"prompt_logprobs_last_n is {last_n}; it needs prompt_logprobs and must be from 1 to {len(prompt_T) - 1}, "
            "one less than the prompt's length"
        )
    targets, layout = None, None
    if request.target_prompt_logprobs is not None:
        targets, layout = decode_targets(request.target_prompt_logprobs, len(prompt_T))
    decoded = SampleRequest(
        request_id=request_id,
        base_model=base_model,
        snapshot_id=snapshot_id,
        prompt_T=prompt_T,
        owner=owner,
        num_samples=request.num_samples,
        max_tokens=params.max_tokens,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        seed=secrets.randbits(63) if params.seed is None else params.seed,
        stop=_decode_stop(params.stop),
        prompt_logprobs=bool(request.prompt_logprobs),
        topk_prompt_logprobs=request.topk_prompt_logprobs,
        topk_sample_logprobs=request.topk_sample_logprobs,
        prompt_targets=targets,
    )
    return decoded, SampleShape(prompt_logprobs_last_n=last_n, targets=layout)


def _refuse_unsupported(request: types.SampleRequest) -> None:
    if request.prompt_alt_tokens_k:
        raise InputError(
            "prompt_alt_tokens_k is not supported by this server; leave it out, and sample from prefixes of the prompt"
        )


def _decode_prompt(prompt: types.ModelInput) -> NDArray[np.int64]:
    tokens: list[int] = []
    for chunk in prompt.chunks:
        if not isinstance(chunk, types.EncodedTextChunk):
            raise InputError(f"chunks of type {chunk.type} are not supported by this server; send encoded_text")
        tokens.extend(chunk.tokens)
    if not tokens:
        raise InputError("the prompt is empty; send at least one token")
    if min(tokens) < 0 or max(tokens) >= _INT32_END:
        raise InputError(f"token {min(tokens) if min(tokens) < 0 else max(tokens)} of the prompt is in no vocabulary")
    return np.array(tokens, dtype=np.int64)


def _decode_stop(stop: str | Sequence[str] | Sequence[int] | None) -> Sequence[str | int] | None:
    if stop is None or not isinstance(stop, str):
        return stop
    return [stop]


def encode_sample(output: SampleOutput, shape: SampleShape) -> bytes:
    """A `SampleResponse` message; logprobs are always there, since callers rely on them."""
    message = pb.SampleResponse(prompt_cache_hit_tokens=output.num_reused_tokens)
    for sequence in output.sequences:
        one = message.sequences.add(
            stop_reason=pb.STOP_REASON_STOP if sequence.is_stopped else pb.STOP_REASON_LENGTH,
            tokens=sequence.tokens_T.astype("<i4", copy=False).tobytes(),
            logprobs=sequence.logprobs_T.astype("<f4", copy=False).tobytes(),
        )
        if sequence.topk_tokens_TK is not None and sequence.topk_logprobs_TK is not None:
            one.topk_sampled_logprobs.CopyFrom(_topk(sequence.topk_tokens_TK, sequence.topk_logprobs_TK))
    num_hidden = 0
    if output.prompt_logprobs_T is not None:
        logprobs_T = output.prompt_logprobs_T.astype("<f4")
        if shape.prompt_logprobs_last_n is not None:
            num_hidden = len(logprobs_T) - shape.prompt_logprobs_last_n
        logprobs_T[:num_hidden] = np.nan
        message.prompt_logprobs = logprobs_T.tobytes()
    if output.topk_prompt_tokens_TK is not None and output.topk_prompt_logprobs_TK is not None:
        tokens_TK = output.topk_prompt_tokens_TK.astype("<i4")
        logprobs_TK = output.topk_prompt_logprobs_TK.astype("<f4")
        tokens_TK[:num_hidden] = 0
        logprobs_TK[:num_hidden] = _NO_CANDIDATE_LOGPROB
        message.topk_prompt_logprobs.CopyFrom(_topk(tokens_TK, logprobs_TK))
    if output.target_logprobs_M is not None and shape.targets is not None:
        message.target_prompt_logprobs.CopyFrom(encode_targets(output.target_logprobs_M, shape.targets))
    return message.SerializeToString()


def _topk(tokens_TK: NDArray[np.int32], logprobs_TK: NDArray[np.float32]) -> pb.TopkLogprobs:
    length, k = tokens_TK.shape
    return pb.TopkLogprobs(
        token_ids=tokens_TK.astype("<i4", copy=False).tobytes(),
        logprobs=logprobs_TK.astype("<f4", copy=False).tobytes(),
        length=length,
        k=k,
    )
