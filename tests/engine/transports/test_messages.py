"""What crosses the socket comes out equal, and of what comes in only values of the contract are made."""

import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from inspect import isclass
from typing import Any

import numpy as np
import pytest

from cookhouse.engine import contract
from cookhouse.engine.contract import (
    Account,
    Amount,
    Done,
    Failed,
    Failure,
    SampledSequence,
    SampleOutput,
    Spent,
)
from cookhouse.engine.transports import messages
from cookhouse.engine.transports.messages import MAX_FRAME_BYTES, MessageError, Receiver, Sender, decode_all, encode
from cookhouse.errors import InputError
from tests.engine.transports.calls import ACCOUNT, a_pass


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def carried(value: object, pair: tuple[socket.socket, socket.socket]) -> Any:
    Sender(pair[0]).send(encode(value))
    return next(Receiver(pair[1], waits=True).read())


def framed(pickled: bytes) -> bytes:
    return struct.pack("<QII", 8 + len(pickled), 0, len(pickled)) + pickled


def received(frame: bytes, pair: tuple[socket.socket, socket.socket]) -> Any:
    pair[0].sendall(frame)
    pair[0].shutdown(socket.SHUT_WR)
    return next(Receiver(pair[1], waits=True).read())


@pytest.mark.parametrize(("num_rows", "num_tokens"), [(0, 0), (1, 16), (3, 0), (700, 3), (40, 20_000)])
def test_a_pass_comes_out_equal_and_may_be_written_to(
    num_rows: int, num_tokens: int, pair: tuple[socket.socket, socket.socket]
) -> None:
    """More arrays than one gathered write takes, more bytes than a socket holds, and none."""
    sent = a_pass(num_rows, num_tokens)
    came = carried(sent, pair)
    assert (came.command_id, came.account, came.model_id) == ("1", ACCOUNT, "m")
    assert isinstance(came.account, Account)
    assert came.request.loss_fn_config == {"a": 0.5, "b": "c"}
    for ours, theirs in zip(sent.request.data_D, came.request.data_D, strict=True):
        assert theirs.tokens_T.dtype == np.int64
        assert theirs.loss_fn_inputs["weights"].dtype == np.float32
        np.testing.assert_array_equal(ours.tokens_T, theirs.tokens_T)
        np.testing.assert_array_equal(ours.loss_fn_inputs["weights"], theirs.loss_fn_inputs["weights"])
        flags = theirs.tokens_T.flags  # torch warns of memory that it must not write to
        assert flags.writeable
        assert flags.aligned


def test_arrays_of_any_layout_keep_shape_and_values(pair: tuple[socket.socket, socket.socket]) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays: list[Any] = [whole.T, whole[::2, 1::3], np.array(3.5), np.ones((0, 5), np.int32), whole > 3]
    for array in arrays:
        sequence = SampledSequence(tokens_T=array, logprobs_T=array, is_stopped=True)
        came = carried(SampleOutput(request_id="r", sequences=(sequence,)), pair).sequences[0]
        np.testing.assert_array_equal(came.tokens_T, array)
        assert came.tokens_T.shape == array.shape
        assert came.topk_tokens_TK is None


def test_every_class_that_crosses_is_one_of_plain_data() -> None:
    """A class of the contract that is forgotten would fail at its first use, in another process."""
    crossing = {maker.cls for maker in messages._MAKERS.values() if isinstance(maker, messages._Maker)}
    classes = {cls for name in contract.__all__ if isclass(cls := getattr(contract, name))}
    assert {cls.__name__ for cls in classes - crossing} == {
        "CanceledError",
        "DamagedError",
        "NoMemoryError",
        "Worker",
        "str",
    }


def test_numbers_in_tuples_come_out_as_their_class(pair: tuple[socket.socket, socket.socket]) -> None:
    spent = Spent(amounts=(Amount(ACCOUNT, "trained_tokens", 3.0),))
    assert carried(spent, pair) == spent
    failed = Failed(command_id="1", failure=Failure(blame="user", kind="input", message="no", details=""))
    assert carried(failed, pair) == failed


@pytest.mark.parametrize(
    "value",
    [
        Done(command_id="1", output={"loss": np.float64(1.0)}),
        Done(command_id="1", output=ValueError("an exception")),  # type: ignore[arg-type]
        Done(command_id="1", output=np.array([object()])),  # type: ignore[arg-type]
        Done(command_id="1", output=np.array(["2026-01-01"], "M8[D]")),  # type: ignore[arg-type]
        print,
        pickle.PickleError,
    ],
    ids=["a numpy number", "an exception", "objects", "dates", "a function", "a class"],
)
def test_what_is_not_of_the_contract_is_refused_where_it_is_sent(value: object) -> None:
    with pytest.raises(TypeError, match="cannot cross to a worker or back"):
        encode(value)


def test_what_is_too_large_is_the_senders_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_FRAME_BYTES", 10_000)
    with pytest.raises(InputError, match="allowed are 10,000"):
        encode(a_pass(10, 1_000))


class _Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


def _global(module: str, name: str) -> bytes:
    """A pickle that is one attribute of a module; a name with dots would be looked up through all of them."""
    text = [b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name)]
    return b"\x80\x05" + text[0] + text[1] + b"\x93."


CONTRACT = "cookhouse.engine.contract"
HOSTILE = {
    "os.system": pickle.dumps(_Calls(__import__("os").system, "true")),
    "eval": pickle.dumps(_Calls(eval, "1")),
    "getattr": pickle.dumps(_Calls(getattr, 1, "real")),
    "protocol 0": pickle.dumps(_Calls(eval, "1"), protocol=0),
    "an array's own pickle": pickle.dumps(np.arange(3)),
    "a data type": pickle.dumps(np.dtype("f4")),
    "numpy's file reader": _global("numpy", "load"),
    "numpy's loader of libraries": _global("numpy.ctypeslib", "load_library"),
    "numpy's builtins": _global("numpy", "__builtins__"),
    "a module within the contract": _global(f"{CONTRACT}.failures", "traceback"),
    "attributes of attributes": _global(f"{CONTRACT}.failures", "traceback.sys.modules"),
    "a method of a class": _global(f"{CONTRACT}.failures", "Failure.of"),
    "a function's globals": _global(f"{CONTRACT}.failures", "Failure.of.__func__.__globals__"),
    "a class under another name": _global(CONTRACT, "Done"),
    "what the contract imports": _global(f"{CONTRACT}.worker", "Path"),
    "our own module": _global(messages.__name__, "_Unpickler"),
    "a builtin class": _global("builtins", "dict"),
    "too many fields": pickle.dumps(_Calls(Failure, 1, 2, 3, 4, 5)),
    "no pickle": b"nothing",
    "nothing": b"",
    "a persistent name": b"\x80\x05\x8c\x01aQ.",
    "a buffer that is not there": b"\x80\x05\x97.",
    # BUILD would set an attribute of a class.
    "an attribute of a class": _global(f"{CONTRACT}.commands", "Account")[:-1] + b"N}\x8c\x05ownerNs\x86b.",
    "an attribute of what makes arrays": _global(messages.__name__, "array")[:-1] + b"N}\x8c\x01aNs\x86b.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_makes_nothing(name: str, pair: tuple[socket.socket, socket.socket]) -> None:
    owner = Account.owner
    with pytest.raises(MessageError):
        received(framed(HOSTILE[name]), pair)
    assert Account.owner is owner


def test_a_class_that_crosses_cannot_be_used_as_one(pair: tuple[socket.socket, socket.socket]) -> None:
    """What a name stands for makes objects, and has no attribute that could be set or read."""
    maker = received(framed(_global(f"{CONTRACT}.events", "Done")), pair)
    assert not isinstance(maker, type)
    with pytest.raises(AttributeError):
        maker.cls = eval
    with pytest.raises(AttributeError):
        maker.other = 1


@pytest.mark.parametrize("dtype", ["|O", "<U4", "i8,O", "V8", "<M8[D]"])
def test_arrays_are_of_plain_numbers(dtype: str, pair: tuple[socket.socket, socket.socket]) -> None:
    forged = pickle.dumps(_Calls(messages.array, bytes(8), dtype, (1,)))
    with pytest.raises(MessageError):
        received(framed(forged), pair)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("<QII", MAX_FRAME_BYTES + 1, 0, 0),
        struct.pack("<QII", 2**64 - 1, 0, 0),
        struct.pack("<Q", 3),
        struct.pack("<QII", 8, 2**32 - 1, 0),
        struct.pack("<QII", 8, 0, 2**32 - 1),
        struct.pack("<QIIQ", 16, 1, 0, 2**64 - 1),
        struct.pack("<QIIQQ", 24, 0, 1, 0, 0),
    ],
    ids=["too long", "far too long", "too short", "arrays", "pickle", "array", "more than its parts"],
)
def test_lengths_that_cannot_be_are_refused(frame: bytes, pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(MessageError):
        received(frame, pair)


def test_an_end_within_a_frame_gives_what_was_whole_and_no_more(pair: tuple[socket.socket, socket.socket]) -> None:
    first, second = (b"".join(encode(Done(command_id=name))) for name in "ab")
    pair[0].sendall(first + second[:-1])
    pair[0].close()
    values = Receiver(pair[1], waits=False).read()
    assert next(values) == Done(command_id="a")
    with pytest.raises(EOFError):
        next(values)


def test_sending_never_waits(pair: tuple[socket.socket, socket.socket]) -> None:
    """Nobody reads while far more is sent than the socket holds."""
    sender = Sender(pair[0])
    for index in range(50):
        sender.send(encode(Done(command_id=str(index), output=bytes(100_000))))
    assert not sender.flush(0)
    values = Receiver(pair[1], waits=True).read()
    assert [next(values).command_id for _ in range(50)] == [str(index) for index in range(50)]
    assert sender.flush()


def test_what_several_threads_send_at_once_comes_whole_and_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    """While it is read, so that there is room now and then: nothing may overtake what waits."""
    sender = Sender(pair[0])

    def send(name: str) -> None:
        for index in range(200):
            sender.send(encode(Done(command_id=f"{name}{index}", output=bytes(20_000 * (index % 7)))))

    threads = [threading.Thread(target=send, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    values = Receiver(pair[1], waits=True).read()
    ids = [next(values).command_id for _ in range(600)]
    for thread in threads:
        thread.join()
    for name in "abc":
        assert [one for one in ids if one.startswith(name)] == [f"{name}{index}" for index in range(200)]


def test_what_nobody_will_read_is_dropped(pair: tuple[socket.socket, socket.socket]) -> None:
    sender = Sender(pair[0])
    for _ in range(50):
        sender.send(encode(Done(command_id="1", output=bytes(100_000))))
    pair[1].close()
    assert sender.flush()
    sender.send(encode(Done(command_id="2")))
    assert sender.flush()


def test_frames_behind_one_another_come_apart_again() -> None:
    """Would catch arrays that lie where a processor reads slowly, or that nobody may write to."""
    values = [a_pass(3, 5, "a"), Done(command_id="b"), a_pass(1, 100_000, "c")]
    decoded = list(decode_all(b"".join(piece for value in values for piece in encode(value))))
    assert [value.command_id for value in decoded] == ["a", "b", "c"]
    for datum in decoded[2].request.data_D:
        assert datum.tokens_T.flags.aligned
        datum.tokens_T[0] = 7


@pytest.mark.parametrize("cut", [1, 7, 8, 20])
def test_frames_that_are_cut_off_are_refused(cut: int) -> None:
    frames = b"".join(encode(Done(command_id="b")))
    with pytest.raises(MessageError):
        list(decode_all(frames + frames[:cut]))


def test_frames_that_say_they_are_longer_than_what_came_are_refused() -> None:
    with pytest.raises(MessageError, match="of 16 that came"):
        list(decode_all(struct.pack("<QII", 2**40, 0, 0)))
