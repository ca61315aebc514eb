import math
from typing import Any

import numpy as np
import pytest
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import deserialize_forward_backward_output, deserialize_sample_response

from cookhouse.engine.contract import ForwardBackwardOutput, SampledSequence, SampleOutput
from cookhouse.errors import InputError
from cookhouse.server.wire import (
    SampleShape,
    begun_training,
    decode_adam,
    decode_lora,
    decode_pass,
    decode_sample,
    encode_pass,
    encode_sample,
    parse_training,
)

MAX_BYTES = 2**20


def encoded(data: list[types.Datum], config: dict[str, float | str] | None = None) -> pb.ForwardBackwardRequest:
    return forward_backward_request_to_proto(
        types.ForwardBackwardRequest(
            forward_backward_input=types.ForwardBackwardInput(
                data=data, loss_fn="cross_entropy", loss_fn_config=config
            ),
            model_id="m",
            seq_id=7,
        )
    )


def decode(message: pb.ForwardBackwardRequest) -> Any:
    return decode_pass(parse_training(message.SerializeToString()), max_bytes=MAX_BYTES)


def message_with(tensor: pb.Tensor) -> pb.ForwardBackwardRequest:
    message = pb.ForwardBackwardRequest(model_id="m", seq_id=1, loss_fn="cross_entropy")
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = np.array([1, 2], dtype="<i4").tobytes()
    datum.loss_fn_inputs["target_tokens"].CopyFrom(tensor)
    return message


def test_what_the_sdk_writes_is_read() -> None:
    """Would catch a dtype, shape, chunk or config lost between the SDK's encoder and the engine's types."""
    datum = types.Datum(
        model_input=types.ModelInput(
            chunks=[types.EncodedTextChunk(tokens=[5, 6]), types.EncodedTextChunk(tokens=[7])]
        ),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=[6, 7, 8], dtype="int64"),
            "weights": types.TensorData(data=[0.5, -1.0, 0.0], dtype="float32", shape=[3]),
        },
    )
    request = decode(encoded([datum, datum], {"beta": 0.05, "mode": "x"}))
    assert (request.model_id, request.loss_fn, request.forward_only) == ("m", "cross_entropy", False)
    assert request.loss_fn_config == {"beta": 0.05, "mode": "x"}
    assert len(request.data_D) == 2
    tokens_T, inputs = request.data_D[1].tokens_T, request.data_D[1].loss_fn_inputs
    assert tokens_T.dtype == np.int64
    assert tokens_T.tolist() == [5, 6, 7]
    assert inputs["target_tokens"].dtype == np.int64
    assert inputs["weights"].dtype == np.float32
    assert inputs["weights"].tolist() == [0.5, -1.0, 0.0]
    assert inputs["weights"].flags.writeable  # torch warns about memory it may not write to


def test_sparse_tensors_become_dense() -> None:
    """Would catch values in the wrong cells, also with empty rows at either end."""
    dense = np.zeros((4, 5), dtype=np.float32)
    dense[1, 4], dense[1, 0], dense[2, 3] = 1.5, -2.0, 0.25
    sparse = types.TensorData(
        data=[-2.0, 1.5, 0.25],
        dtype="float32",
        shape=[4, 5],
        sparse_crow_indices=[0, 0, 2, 3, 3],
        sparse_col_indices=[0, 4, 3],
    )
    datum = types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3, 4]), loss_fn_inputs={"weights": sparse})
    assert np.array_equal(decode(encoded([datum])).data_D[0].loss_fn_inputs["weights"], dense)


def csr(crow: list[int], columns: list[int], values: list[float], shape: list[int]) -> pb.Tensor:
    tensor = pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=shape)
    tensor.sparse_csr.values = np.array(values, dtype="<f4").tobytes()
    tensor.sparse_csr.crow_indices = np.array(crow, dtype="<i8").tobytes()
    tensor.sparse_csr.col_indices = np.array(columns, dtype="<i8").tobytes()
    return tensor


HOSTILE = {
    "a bomb of columns": csr([0, 1], [0], [1.0], [1, 10**12]),
    "a bomb of rows": csr([0, 1], [0], [1.0], [10**12, 1]),
    "a product that overflows": csr([0, 1], [0], [1.0], [2**40, 2**40]),
    "a column outside": csr([0, 1], [5], [1.0], [1, 5]),
    "a negative column": csr([0, 1], [-1], [1.0], [1, 5]),
    "rows that go back": csr([0, 2, 1], [0, 1], [1.0, 1.0], [2, 5]),
    "rows that go back after an overflow": csr([0, 2**63 - 1, -2, 2], [0, 0], [1.0, 1.0], [3, 4]),
    "a first row that is not 0": csr([1, 1], [0], [1.0], [1, 5]),
    "too few row indices": csr([], [], [], [1, 5]),
    "more values than listed": csr([0, 1], [0, 1], [1.0, 1.0], [1, 5]),
    "sparse in one dimension": csr([0, 1], [0], [1.0], [1]),
    "nothing in many columns": csr([0], [], [], [0, 2**62]),
    "a negative dimension": pb.Tensor(dtype=pb.DTYPE_INT64, shape=[-1, -2], dense=bytes(16)),
    "three dimensions": pb.Tensor(dtype=pb.DTYPE_INT64, shape=[1, 1, 2], dense=bytes(16)),
    "a shape that does not fit": pb.Tensor(dtype=pb.DTYPE_INT64, shape=[3], dense=bytes(16)),
    "half a value": pb.Tensor(dtype=pb.DTYPE_INT64, shape=[2], dense=bytes(15)),
    "an unknown dtype": pb.Tensor(dtype=pb.DTYPE_BFLOAT16, shape=[8], dense=bytes(16)),
    "no dtype": pb.Tensor(shape=[2], dense=bytes(16)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tensors_are_refused(name: str) -> None:
    """Would catch a crash, an allocation of terabytes, or memory read out of bounds."""
    with pytest.raises(InputError, match=r"target_tokens|over 1048576 bytes"):
        decode(message_with(HOSTILE[name]))


@pytest.mark.parametrize(
    ("offset", "length", "message"),
    [
        (0, 2**62, "cover 4611686018427387904 positions of 2"),
        (-1, 2, "has offset -1 and length 2"),
        (0, -2, "has offset 0 and length -2"),
        (0, 1, "cover 1 positions of 2"),
        (None, None, "names neither a prompt nor a sampled sequence"),
    ],
)
def test_hostile_spans_are_refused(offset: int | None, length: int | None, message: str) -> None:
    """Would catch a mask of the wrong size, and one written from its end."""
    body = message_with(pb.Tensor(dtype=pb.DTYPE_INT64, dense=bytes(16)))
    body.loss_fn = "stable_reinforce"
    for spans in (body.data[0].model_input_spans, body.data[0].loss_fn_input_spans):
        span = spans.add()
        if offset is not None and length is not None:
            span.sampled_tokens.sequence_id = "a-0"
            span.sampled_tokens.offset, span.sampled_tokens.length = offset, length
    with pytest.raises(InputError, match=message):
        decode(body)


def test_what_is_empty_is_counted() -> None:
    """Would catch a small body of millions of empty datums, which takes gigabytes as objects."""
    message = pb.ForwardBackwardRequest(model_id="m")
    for _ in range(5000):
        message.data.add()
    with pytest.raises(InputError, match="over 1048576 bytes"):
        decode(message)


def test_what_is_not_text_or_not_protobuf_is_refused() -> None:
    """Would catch chunks that are skipped, which would shift every position after them."""
    message = message_with(pb.Tensor(dtype=pb.DTYPE_INT64, dense=bytes(16)))
    message.data[0].model_input.add().image.format = "png"
    with pytest.raises(InputError, match=r"datum 0: .*image"):
        decode(message)
    message = message_with(pb.Tensor(dtype=pb.DTYPE_INT64, dense=bytes(16)))
    message.data[0].model_input.add()
    with pytest.raises(InputError, match="none"):
        decode(message)
    with pytest.raises(InputError, match="no datum"):
        decode(pb.ForwardBackwardRequest(model_id="m"))
    with pytest.raises(InputError, match="protobuf"):
        parse_training(b"{}not protobuf")


def test_outputs_of_unequal_widths_reach_the_sdk_in_order() -> None:
    """Would catch records that the SDK concatenates in another order, or shapes that are lost."""
    shapes = [(3,), (2,), (2, 4), (1, 4), (5, 2), (2,)]
    generator = np.random.default_rng(0)
    logprobs_D = [generator.normal(size=shape).astype(np.float32) for shape in shapes]
    message = encode_pass(ForwardBackwardOutput(logprobs_D=logprobs_D, metrics={"loss:sum": 1.5}))
    result = deserialize_forward_backward_output(message)
    assert result.metrics == {"loss:sum": 1.5}
    for output, expected in zip(result.loss_fn_outputs, logprobs_D, strict=True):
        assert tuple(output["logprobs"].shape or ()) == expected.shape
        assert np.array_equal(output["logprobs"].to_numpy(), expected)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"learning_rate": math.inf}, "learning_rate"),
        ({"beta1": -0.1}, "beta1"),
        ({"eps": 0.0}, "eps"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"grad_clip_norm": math.nan}, "grad_clip_norm"),
    ],
)
def test_adam_values_outside_their_range(changed: dict[str, float], named: str) -> None:
    """Would catch a NaN that passes a comparison."""
    with pytest.raises(InputError, match=named):
        decode_adam(types.AdamParams(**changed))


def test_adapters_outside_their_range() -> None:
    """Would catch a rank that allocates all memory, and an adapter of nothing."""
    for config in (
        types.LoraConfig(rank=-1),
        types.LoraConfig(rank=10**9),
        types.LoraConfig(rank=8, seed=-1),
        types.LoraConfig(rank=8, train_attn=False, train_mlp=False, train_unembed=False),
    ):
        with pytest.raises(InputError):
            decode_lora(config, seed=0, max_rank=64)
    assert decode_lora(types.LoraConfig(rank=8), seed=5, max_rank=64).seed == 5


def sample_request(**changed: Any) -> types.SampleRequest:
    fields = {"prompt": {"chunks": [{"tokens": [1, 2, 3]}]}, "sampling_params": {"max_tokens": 4}}
    return types.SampleRequest.model_validate({**fields, **changed})


@pytest.mark.parametrize("stop", [None, [], ["a", "b"], [4, 5]])
def test_stop_conditions_keep_their_meaning(stop: Any) -> None:
    """Would catch "nothing stops" and "the model's end tokens" becoming the same."""
    request = sample_request(sampling_params={"stop": stop})
    decoded, _ = decode_sample(request, request_id="r", base_model="b", snapshot_id=None)
    assert decoded.stop == stop
    one = sample_request(sampling_params={"stop": "ab"})
    assert decode_sample(one, request_id="r", base_model="b", snapshot_id=None)[0].stop == ["ab"]


def test_a_seed_is_drawn_where_a_request_is_accepted() -> None:
    """Would catch a sample that cannot be drawn again by another engine, and requests that all get one seed."""
    unseeded = [decode_sample(sample_request(), request_id="r", base_model="b", snapshot_id=None)[0] for _ in range(2)]
    assert unseeded[0].seed != unseeded[1].seed
    seeded = sample_request(sampling_params={"seed": 2**64 - 1})
    assert decode_sample(seeded, request_id="r", base_model="b", snapshot_id=None)[0].seed == 2**64 - 1


@pytest.mark.parametrize(
    "changed",
    [
        {"topk_sample_logprobs": -1},
        {"prompt_alt_tokens_k": 1},
        {"sampling_params": {"seed": -1}},
        {"sampling_params": {"seed": 2**64}},
        {"sampling_params": {"temperature": math.nan}},
        {"prompt_logprobs_last_n": 1},
        {"prompt_logprobs": True, "prompt_logprobs_last_n": 3},
        {"topk_prompt_logprobs": -1},
        {"prompt": {"chunks": [{"tokens": [2**31]}]}},
        {"prompt": {"chunks": [{"tokens": [1]}, {"type": "image", "data": "eA==", "format": "png"}]}},
    ],
)
def test_samples_that_cannot_be_given_are_refused(changed: dict[str, Any]) -> None:
    """Would catch an option that is silently ignored."""
    with pytest.raises(InputError):
        decode_sample(sample_request(**changed), request_id="r", base_model="b", snapshot_id=None)


def test_samples_reach_the_sdk_whole() -> None:
    """Would catch fields mixed up between sequences, and NaN that is not read as None."""
    sequences = [
        SampledSequence(
            tokens_T=np.array([index, 9], dtype=np.int32),
            logprobs_T=np.array([-0.5, -index], dtype=np.float32),
            is_stopped=index == 1,
        )
        for index in range(2)
    ]
    output = SampleOutput(
        request_id="r",
        sequences=sequences,
        num_reused_tokens=2,
        prompt_logprobs_T=np.array([math.nan, -1.0, -2.0], dtype=np.float32),
        topk_prompt_tokens_TK=np.array([[0], [7], [8]], dtype=np.int32),
        topk_prompt_logprobs_TK=np.array([[-99999.0], [-0.1], [-0.2]], dtype=np.float32),
    )
    result = deserialize_sample_response(encode_sample(output, SampleShape(prompt_logprobs_last_n=1)))
    assert [list(one.tokens) for one in result.sequences] == [[0, 9], [1, 9]]
    assert [one.stop_reason for one in result.sequences] == ["length", "stop"]
    assert result.sequences[1].logprobs == [-0.5, -1.0]
    assert result.prompt_logprobs == [None, None, -2.0]
    assert result.prompt_cache_hit_tokens == 2
    rows = result.topk_prompt_logprobs
    assert rows is not None
    assert rows[:2] == [None, None]
    assert rows[2] is not None
    assert rows[2][0][0] == 8
    assert rows[2][0][1] == pytest.approx(-0.2)


def test_a_body_s_beginning_says_whose_it_is() -> None:
    """Would catch a request that is refused, or sent astray, since its beginning was cut in the middle of a field."""
    message = pb.ForwardBackwardRequest(model_id="s:train:0", seq_id=300, loss_fn="cross_entropy")
    message.data.add().model_input.add().encoded_text.tokens = bytes(400)
    body = message.SerializeToString()
    assert [(begun.model_id, begun.seq_id, begun.loss_fn) for begun in map(begun_training, [body, body[:20]])] == [
        ("s:train:0", 300, "")
    ] * 2
    for end in range(11):
        assert begun_training(body[:end]).model_id == ""
    turned = pb.ForwardBackwardRequest(data=message.data).SerializeToString() + body
    assert begun_training(turned).model_id == ""
    for harm in (b"\x0f" + body, b"\x0a\x02\xff\xff" + body):
        with pytest.raises(InputError, match="is not a ForwardBackwardRequest"):
            begun_training(harm)
