"""Training requests and their results. D datums, T positions, K targets per position."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec, TrainingDatum
from cookhouse.errors import InputError
from cookhouse.losses.policy_losses import OWN_LOSSES, STABLE_REINFORCE
from cookhouse.server.wire.fields import FieldCounter, fields_before, split_messages
from cookhouse.server.wire.provenance import Provenance, decode_provenance

_DTYPES: dict[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
}
_TOKEN_DTYPE = np.dtype("<i4")
_MAX_LENGTH = 2**31
_OBJECT_BYTES = 1024
"""Cost of a chunk, a tensor or a datum besides its values, and its time; on the wire an empty one takes two bytes."""
_MAX_FIELDS = 2**18
"""Of a request: a datum of the SDK's has about 40."""


@dataclass(slots=True)
class Allowance:
    """Bytes that one request may take once decoded: sparse shapes and empty datums are free to write and dear to
    hold.
    """

    max_bytes: int
    num_taken: int = 0

    def take(self, num_bytes: int) -> None:
        self.num_taken += num_bytes
        if self.num_taken > self.max_bytes:
            raise InputError(
                f"the request's tensors are over {self.max_bytes} bytes when decoded; send fewer datums at a time, "
                "or check their shapes"
            )


def decode_tokens(chunks: Any, budget: Allowance) -> NDArray[np.int64]:
    """The tokens of a datum's chunks in one int64 array."""
    parts = []
    for chunk in chunks:
        budget.take(_OBJECT_BYTES)
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
    budget.take(_OBJECT_BYTES)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingHead:
    """A training request whose data is not decoded yet: what is needed to accept it."""

    model_id: str
    seq_id: int | None
    """None: it has none, which JSON alone can say."""
    message: pb.ForwardBackwardRequest
    """Less its datums."""
    body: bytes | bytearray
    data_D: Sequence[slice]
    """Where the datums are in the body: one at a time is read."""


def training_counter(num_bytes: int) -> Callable[[bytes], None] | None:
    """Function that counts the fields of a `forward_backward` body of so many bytes; None where they cannot be too
    many.

    It raises `TooLargeError` where they are.
    """
    return FieldCounter(pb.ForwardBackwardRequest.DESCRIPTOR, _MAX_FIELDS).feed if num_bytes > 2 * _MAX_FIELDS else None


def parse_training(body: bytes | bytearray) -> TrainingHead:
    """Read a `forward_backward` body, whose fields have been counted.

    Raises:
        InputError: the body is not a `ForwardBackwardRequest`.
    """
    rest, data_D = split_messages(body, pb.ForwardBackwardRequest.DATA_FIELD_NUMBER)
    try:
        message = pb.ForwardBackwardRequest.FromString(rest)
    except DecodeError as error:
        raise _no_training() from error
    return TrainingHead(model_id=message.model_id, seq_id=message.seq_id, message=message, body=body, data_D=data_D)


def begun_training(beginning: bytes) -> pb.ForwardBackwardRequest:
    """Parse the beginning of a `forward_backward` body, before its datums: of clients that write fields in order,
    which model it is for. Raises as `parse_training`.
    """
    try:
        rest = fields_before(beginning, pb.ForwardBackwardRequest.DATA_FIELD_NUMBER)
        return pb.ForwardBackwardRequest.FromString(rest)
    except DecodeError as error:
        raise _no_training() from error


def decode_pass(head: TrainingHead, *, max_bytes: int) -> ForwardBackward:
    """The engine's request, with tensors dense. Whether they fit the loss and the model is for the engine to say."""
    message = head.message
    loss_fn_config: dict[str, float | str] = dict(message.loss_fn_config)
    if message.loss_fn_config_v2:
        loss_fn_config = {
            name: value.text if value.WhichOneof("value") == "text" else value.number
            for name, value in message.loss_fn_config_v2.items()
        }
    if not head.data_D:
        raise InputError("the request has no datum; send at least one")
    budget = Allowance(max_bytes)
    data_D = [
        _decode_datum(bytes(head.body[one]), index, budget, message.loss_fn) for index, one in enumerate(head.data_D)
    ]
    return ForwardBackward(
        model_id=head.model_id,
        data_D=data_D,
        loss_fn=message.loss_fn,
        loss_fn_config=loss_fn_config,
        forward_only=message.forward_only,
    )


def has_empty_chunk(head: TrainingHead) -> bool:
    """True if a datum has a text chunk without tokens, of a request that has been decoded."""
    data = (pb.Datum.FromString(bytes(head.body[one])) for one in head.data_D)
    return any(
        chunk.WhichOneof("chunk") == "encoded_text" and not chunk.encoded_text.tokens
        for datum in data
        for chunk in datum.model_input
    )


def provenance_of(head: TrainingHead, num_tokens: Iterable[int]) -> Sequence[Provenance]:
    """Provenance of the tokens of each datum, of a request that has been decoded, its datums of so many tokens."""
    data = (pb.Datum.FromString(bytes(head.body[one])) for one in head.data_D)
    return [decode_provenance(datum, length) for datum, length in zip(data, num_tokens, strict=True)]


def _decode_datum(data: bytes, index: int, budget: Allowance, loss_fn: str) -> TrainingDatum:
    try:
        budget.take(_OBJECT_BYTES)
        datum = pb.Datum.FromString(data)
        tokens_T = decode_tokens(datum.model_input, budget)
        inputs = {name: decode_tensor(tensor, name, budget) for name, tensor in datum.loss_fn_inputs.items()}
        if loss_fn == STABLE_REINFORCE:
            _add_mask(datum, len(tokens_T), inputs, budget)
        return TrainingDatum(tokens_T=tokens_T, loss_fn_inputs=inputs)
    except DecodeError as error:
        raise InputError(f"datum {index} is not a Datum in protobuf") from error
    except InputError as error:
        raise InputError(f"datum {index}: {error}") from error


def _add_mask(datum: pb.Datum, num_tokens: int, inputs: dict[str, NDArray[Any]], budget: Allowance) -> None:
    """Add which targets were sampled, as the spans of a datum say, for the loss that reads it."""
    name = OWN_LOSSES[STABLE_REINFORCE].mask_input
    assert name is not None
    if name in inputs:
        raise InputError(f"{STABLE_REINFORCE} does not take {name}; it is read off the spans of the datum")
    budget.take(4 * num_tokens)
    inputs[name] = decode_provenance(datum, num_tokens).is_sampled(num_tokens)


def encode_pass(output: ForwardBackwardOutput) -> bytes:
    """A `ForwardBackwardOutput` message: neighbors of one trailing shape share a record, as the SDK expects."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", metrics=dict(output.metrics))
    for trailing_shape, group in groupby(output.logprobs_D, key=lambda logprobs: logprobs.shape[1:]):
        logprobs_D = list(group)
        record = message.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=len(logprobs_D))
        offsets = np.zeros(len(logprobs_D) + 1, dtype="<i8")
        np.cumsum([4 * logprobs.size for logprobs in logprobs_D], out=offsets[1:])
        field = record.fields["logprobs"]
        field.data = b"".join(logprobs.astype("<f4", copy=False).tobytes() for logprobs in logprobs_D)
        field.offsets = offsets.tobytes()
        field.dtype = pb.DTYPE_FLOAT32
        field.trailing_shape.extend(trailing_shape)
    return message.SerializeToString()


def _no_training() -> InputError:
    return InputError("the body is not a ForwardBackwardRequest in protobuf")


def decode_adam(params: types.AdamParams | types.optimizer.OptimParamsBase) -> AdamStep:
    """Hyperparameters of a step, checked.

    Raises:
        InputError: another optimizer than AdamW, or a value outside its range.
    """
    if not isinstance(params, types.AdamParams):
        raise InputError(f"optimizer {params.type!r} is not supported; this server has adamw (send adam_params)")
    step = AdamStep(**params.model_dump())
    step.check()
    return step


def decode_lora(config: types.LoraConfig | None, *, seed: int, max_rank: int) -> LoraSpec:
    """Weights that a run trains; `seed` is taken when the request names none.

    Raises:
        InputError: a rank outside 0 (all weights) to `max_rank`, a negative seed, or nothing to train.
    """
    config = config or types.LoraConfig(rank=32)
    if not 0 <= config.rank <= max_rank:
        raise InputError(
            f"LoRA rank {config.rank} is not supported; allowed are 1 to {max_rank}, and 0 to train all weights"
        )
    if config.seed is not None and not 0 <= config.seed < 2**63:
        raise InputError(f"seed {config.seed} cannot be used; allowed are 0 to 2**63 - 1")
    if not (config.train_attn or config.train_mlp or config.train_unembed):
        raise InputError("At least one of train_unembed, train_mlp, or train_attn must be True")
    return LoraSpec(
        rank=config.rank,
        seed=seed if config.seed is None else config.seed,
        train_attn=config.train_attn,
        train_mlp=config.train_mlp,
        train_unembed=config.train_unembed,
    )
