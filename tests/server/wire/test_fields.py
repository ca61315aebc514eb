"""Small bodies of millions of messages, which take gigabytes once they are built."""

import random
import tracemalloc

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.errors import InputError
from cookhouse.server.refusals import TooLargeError
from cookhouse.server.wire.fields import FieldCounter, split_messages

NUM_BYTES = 8 * 2**20
DATA = pb.ForwardBackwardRequest.DATA_FIELD_NUMBER


def inside(field: int, content: bytes) -> bytes:
    """A field whose content is as long as the message is: its length is written in three bytes or four."""
    length = len(content)
    return bytes(
        [field << 3 | 2, length & 127 | 128, length >> 7 & 127 | 128, length >> 14 & 127 | 128, length >> 21]
    ) + (content)


def filled(part: bytes) -> bytes:
    return part * (NUM_BYTES // len(part))


BOMBS = {
    "datums": filled(b"\x1a\x00"),
    "chunks": inside(3, filled(b"\x0a\x00")),
    "tensors": inside(3, filled(b"\x12\x00")),
    "spans": inside(3, filled(b"\x1a\x00")),
    "a shape": inside(3, inside(2, inside(2, inside(4, bytes(NUM_BYTES))))),
    "settings of a loss": filled(b"\x3a\x00"),
    "unknown numbers": filled(b"\x78\x00"),
    "unknown groups": filled(b"\x7b\x7c"),
}


def count(body: bytes, *, piece: int, max_fields: int) -> None:
    counter = FieldCounter(pb.ForwardBackwardRequest.DESCRIPTOR, max_fields)
    for at in range(0, len(body), piece):
        counter.feed(body[at : at + piece])


@pytest.mark.parametrize("name", BOMBS)
def test_what_has_many_fields_is_refused_before_a_message_is_built(name: str) -> None:
    """Would catch one kind of field that is not looked into, or one that is counted when memory is gone."""
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match="more than 1000 fields"):
            count(BOMBS[name], piece=2**18, max_fields=1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def request(num_data: int = 3) -> pb.ForwardBackwardRequest:
    message = pb.ForwardBackwardRequest(model_id="a model of some length", seq_id=7, loss_fn="cross_entropy")
    message.loss_fn_config["beta"] = 0.5
    message.loss_fn_config_v2["mode"].text = "x"
    for index in range(num_data):
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = np.arange(100 * index, dtype="<i4").tobytes()
        tensor = datum.loss_fn_inputs["target_tokens"]
        tensor.dense, tensor.dtype = bytes(800), pb.DTYPE_INT64
        tensor.shape.extend([2, 50])
    return message


def num_fields(body: bytes, piece: int) -> int:
    """The least bound that lets it pass."""
    return min(most for most in range(40, 50) if not is_refused(body, piece, most))


def is_refused(body: bytes, piece: int, max_fields: int) -> bool:
    try:
        count(body, piece=piece, max_fields=max_fields)
    except TooLargeError:
        return True
    return False


@pytest.mark.parametrize("piece", [1, 7, 64, 10**6])
def test_fields_are_the_same_however_bytes_arrive(piece: int) -> None:
    """Would catch a field that is cut between two pieces and read as another."""
    unknown = bytes([15 << 3 | 2, 20]) + bytes(20)  # the heads of fields in the last twenty bytes are not looked at
    # A datum has four for its tokens, one of them left out where there are none, and eight for its tensor.
    assert num_fields(request().SerializeToString() + unknown, piece) == 3 + 3 + 4 + (11 + 12 + 12) + 1


def test_a_message_is_parted_as_the_library_reads_it() -> None:
    """Would catch a body that is taken for another one than the library takes it for, and one that is no message."""
    draw = random.Random(3)
    body = request().SerializeToString()
    num_read = 0
    for _ in range(3000):
        changed = bytearray(body)
        for _ in range(draw.randrange(4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        del changed[draw.choice([len(changed), draw.randrange(len(changed))]) :]
        try:
            expected = pb.ForwardBackwardRequest.FromString(bytes(changed))
        except DecodeError:
            expected = None
        try:
            rest, places = split_messages(changed, DATA)
            found = pb.ForwardBackwardRequest.FromString(rest)
            found.data.extend(pb.Datum.FromString(bytes(changed[place])) for place in places)
        except (DecodeError, InputError):
            found = None
        if found is not None and expected is not None:
            num_read += 1
            assert found.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
        assert expected is None or found is not None or has_group(changed)
        assert found is None or expected is not None
    assert num_read > 300


def has_group(body: bytearray) -> bool:
    """Whether it has one of protobuf's groups, which no client sends and which are not read."""
    return any(byte & 7 in (3, 4) for byte in body)
