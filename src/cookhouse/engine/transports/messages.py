"""Values of the contract on a socket: a frame is a pickle, and behind it the bytes of its arrays.

    length of the rest, number of arrays, length of the pickle | lengths of the arrays | pickle | arrays, each aligned

Arrays are never copied: they are sent from where they are, in one gathered write, and read into one allocation.
Nothing is looked up by a name that came in: the classes of the contract, and arrays, are all that a frame can make.
"""

import io
import pickle
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from cookhouse.engine import contract
from cookhouse.errors import InputError

MAX_FRAME_BYTES = 2**31
_MAX_ARRAYS = 2**20
_HEADER = struct.Struct("<QII")
_LENGTH_BYTES = 8
_ALIGNMENT = 16
_JOINED_BYTES = 2**16
"""Up to here one copy costs less than a gathered write."""
_DTYPES: Final = {dtype.str: dtype for dtype in map(np.dtype, "?bhilqBHILQefd")}

Pieces = list[memoryview]
_MAX_GATHERED = 1000
"""Pieces of one write: Linux takes 1024."""


class MessageError(Exception):
    """Bytes that came over a socket are no message of ours."""


class _Maker(NamedTuple):
    """Makes a class's objects from the values of its fields. Unlike the class, no pickle can change it."""

    cls: type
    names: tuple[str, ...]

    def __call__(self, *values: object) -> object:
        return self.cls(**dict(zip(self.names, values, strict=True)))


class _ArrayMaker(NamedTuple):
    """Makes arrays of plain numbers."""

    def __call__(self, *parts: Any) -> object:
        buffer, dtype, shape = parts
        return np.frombuffer(buffer, _DTYPES[dtype]).reshape(shape)


def _field_names(cls: type) -> tuple[str, ...] | None:
    """Of a class whose objects may cross."""
    if is_dataclass(cls):
        return tuple(field.name for field in fields(cls))
    return getattr(cls, "_fields", None)


def array() -> None:
    """Stands in a pickle for what makes an array."""


_NAMES: Final[dict[type, tuple[str, ...]]] = {
    cls: names
    for cls in (getattr(contract, name) for name in contract.__all__)
    if isinstance(cls, type) and (names := _field_names(cls)) is not None
}
_MAKERS: Final[dict[tuple[str, str], _Maker | _ArrayMaker]] = {
    (array.__module__, array.__name__): _ArrayMaker(),
    **{(cls.__module__, cls.__name__): _Maker(cls, names) for cls, names in _NAMES.items()},
}


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Called for all but Python's own plain values."""
        cls = type(value)
        if cls is np.ndarray:
            if value.dtype.str not in _DTYPES:
                raise TypeError(f"an array of {value.dtype} cannot cross to a worker or back; numbers can")
            whole = np.ascontiguousarray(value)
            return array, (pickle.PickleBuffer(whole.data), whole.dtype.str, value.shape)
        names = _NAMES.get(cls)
        if names is not None:
            return cls, tuple(getattr(value, name) for name in names)
        if value is array or (cls is type and value in _NAMES):
            return NotImplemented
        raise TypeError(f"{value!r:.80} of {cls.__name__} cannot cross to a worker or back; the contract's classes can")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """From the table alone: no module is imported, and no attribute looked up."""
        if (maker := _MAKERS.get((module, name))) is None:
            raise MessageError(f"{module}.{name} is not of the contract")
        return maker


def encode(value: object) -> Pieces:
    """A frame, as pieces to be sent one behind the other; those of large arrays are the arrays themselves.

    Raises:
        TypeError: the value holds what is not of the contract.
        InputError: it is too large.
    """
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    arrays = [buffer.raw() for buffer in buffers]
    lengths = struct.pack(f"<{len(arrays)}Q", *(array.nbytes for array in arrays))
    pieces = [memoryview(lengths), file.getbuffer()]
    position = _HEADER.size - _LENGTH_BYTES + sum(piece.nbytes for piece in pieces)
    for one in arrays:
        padding = -position % _ALIGNMENT
        pieces += [memoryview(bytes(padding)), one]
        position += padding + one.nbytes
    if position > MAX_FRAME_BYTES or len(arrays) > _MAX_ARRAYS:
        raise InputError(
            f"{position:,} bytes in {len(arrays):,} arrays are too much for one command or event; "
            f"allowed are {MAX_FRAME_BYTES:,} in {_MAX_ARRAYS:,}; send it in parts"
        )
    pieces.insert(0, memoryview(_HEADER.pack(position, len(arrays), file.tell())))
    if position <= _JOINED_BYTES:
        return [memoryview(b"".join(pieces))]
    return [piece for piece in pieces if piece.nbytes]


def _decode(rest: memoryview) -> Any:
    num_arrays, num_pickled = struct.unpack_from("<II", rest)
    start = _HEADER.size - _LENGTH_BYTES
    position = start + _LENGTH_BYTES * num_arrays
    if position + num_pickled > rest.nbytes:
        raise MessageError("a frame is shorter than it says")
    lengths = struct.unpack_from(f"<{num_arrays}Q", rest, start)
    file = io.BytesIO(rest[position : position + num_pickled])
    position += num_pickled
    arrays = []
    for length in lengths:
        position += -position % _ALIGNMENT
        arrays.append(rest[position : position + length])
        position += length
    if position != rest.nbytes:
        raise MessageError("a frame is not as long as its parts")
    try:
        return _Unpickler(file, buffers=arrays).load()
    except MessageError:
        raise
    except Exception as error:  # a pickle that is none ends in any
        raise MessageError(f"a frame cannot be read: {type(error).__name__}: {error}") from error


def decode_all(data: bytes) -> Iterator[Any]:
    """The values of frames, one behind the other. Their arrays can be written to, as those off a socket can.

    Raises:
        MessageError: it is no row of whole frames.
    """
    rest = memoryview(data)
    while rest:
        if rest.nbytes < _LENGTH_BYTES:
            raise MessageError("a frame is cut off")
        (num_bytes,) = struct.unpack_from("<Q", rest)
        end = _LENGTH_BYTES + num_bytes
        if num_bytes < _HEADER.size - _LENGTH_BYTES or end > rest.nbytes:
            raise MessageError(f"a frame says that it has {num_bytes:,} bytes, of {rest.nbytes:,} that came")
        whole = np.empty(num_bytes, np.uint8)  # aligned, and ours to be written to
        whole[:] = rest[_LENGTH_BYTES:end]
        yield _decode(whole.data)
        rest = rest[end:]


class Receiver:
    """Reads frames off a socket."""

    def __init__(self, source: socket.socket, *, waits: bool) -> None:
        self._source = source
        self._flags = 0 if waits else socket.MSG_DONTWAIT
        self._length = memoryview(bytearray(_LENGTH_BYTES))
        self._target = self._length
        self._filled = 0

    def read(self) -> Iterator[Any]:
        """Values as they become whole. Where it shall not wait, it ends when no more is there for now.

        Raises:
            EOFError: the other end is closed.
            MessageError: what came is no message.
        """
        while True:
            try:
                num_bytes = self._source.recv_into(self._target[self._filled :], 0, self._flags)
            except BlockingIOError:
                return
            except ConnectionError as error:
                raise EOFError from error
            if num_bytes == 0:
                raise EOFError
            self._filled += num_bytes
            if self._filled < self._target.nbytes:
                continue
            whole, self._filled = self._target, 0
            if whole is not self._length:
                self._target = self._length
                yield _decode(whole)
                continue
            (num_bytes,) = struct.unpack("<Q", whole)
            if not _HEADER.size - _LENGTH_BYTES <= num_bytes <= MAX_FRAME_BYTES:
                raise MessageError(f"a frame says that it has {num_bytes:,} bytes")
            self._target = np.empty(num_bytes, np.uint8).data


class Sender:
    """Sends frames in order, from any thread. What the socket does not take at once, a thread of its own sends.

    Once the other end is closed, what is sent is dropped: reading tells of the end.
    """

    def __init__(self, target: socket.socket) -> None:
        self._target = target
        self._wake = threading.Condition(threading.RLock())
        self._waiting: deque[memoryview] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def send(self, pieces: Sequence[memoryview]) -> None:
        with self._wake:
            if self._is_closed:
                return
            rest = list(pieces)
            if not self._waiting:
                rest = self._sent(rest, socket.MSG_DONTWAIT)
            if rest:
                self._waiting.extend(rest)
                self._wake.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
                    self._thread.start()

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until all is sent; False if that takes longer."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._waiting, seconds)

    def close(self) -> None:
        """Drop what is not sent."""
        with self._wake:
            self._is_closed = True
            self._waiting.clear()
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                # They stay in the queue meanwhile, so that nothing overtakes them.
                pieces = list(islice(self._waiting, _MAX_GATHERED))
            rest = self._sent(pieces, 0)
            with self._wake:
                if self._is_closed:
                    return
                for _ in pieces:
                    self._waiting.popleft()
                self._waiting.extendleft(reversed(rest))
                self._wake.notify_all()

    def _sent(self, pieces: Pieces, flags: int) -> Pieces:
        """Send; return what is left of the pieces."""
        while pieces:
            try:
                num_bytes = self._target.sendmsg(pieces[:_MAX_GATHERED], (), flags)
            except BlockingIOError:
                break
            except OSError:  # nobody reads any more
                self.close()
                return []
            num_whole = 0
            while num_whole < len(pieces) and num_bytes >= pieces[num_whole].nbytes:
                num_bytes -= pieces[num_whole].nbytes
                num_whole += 1
            pieces = pieces[num_whole:]
            if num_bytes:
                pieces[0] = pieces[0][num_bytes:]
        return pieces
