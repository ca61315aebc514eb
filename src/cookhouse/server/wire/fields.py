"""Fields of protobuf messages and values of JSON, counted before they are built: two bytes may take hundreds."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from cookhouse.errors import InputError
from cookhouse.server.refusals import TooLargeError

_MAX_HEAD_BYTES = 20
"""Of a field: its tag and its length, or its number."""
_VARINT, _FIXED64, _BYTES, _GROUP, _END_OF_GROUP, _FIXED32 = range(6)
_SIZES = {_FIXED64: 8, _GROUP: 0, _END_OF_GROUP: 0, _FIXED32: 4}
_PACKED: dict[int, Any] = {}
"""In place of the fields of a message: numbers side by side."""


class FieldCounter:
    """Counts the fields of a message and of those in it, and each byte of packed numbers as one."""

    def __init__(self, message: Descriptor, max_fields: int) -> None:
        self._max_fields = max_fields
        self._num_fields = 0
        self._rest = b""
        """Read, but too short to hold the next field's head for sure."""
        self._rest_at = 0
        """Offset of `_rest` in the message, as all offsets are."""
        self._next_at = 0
        self._open = [(2**63, _nested(message))]
        """Where each message ends that the next field is in, and the fields in it that have fields themselves."""

    def feed(self, data: bytes) -> None:
        """Take more bytes.

        Raises:
            TooLargeError: the fields are too many.
            InputError: it is no protobuf.
        """
        data, at = self._rest + data, self._next_at - self._rest_at
        last = len(data) - _MAX_HEAD_BYTES
        num_fields, open_messages, offset = self._num_fields, self._open, self._rest_at
        end, nested = open_messages[-1]
        while at <= last:
            while at + offset >= end:
                if at + offset > end:
                    raise _malformed()
                open_messages.pop()
                end, nested = open_messages[-1]
            num_fields += 1
            if num_fields > self._max_fields:
                raise _too_many(self._max_fields)
            tag, at = _varint(data, at)
            kind = tag & 7
            if kind == _BYTES:
                length, at = _varint(data, at)
                inner = nested.get(tag >> 3)
                if inner is None:
                    at += length
                elif inner is _PACKED:
                    num_fields += length
                    if num_fields > self._max_fields:
                        raise _too_many(self._max_fields)
                    at += length
                else:
                    end, nested = at + offset + length, inner
                    open_messages.append((end, nested))
            elif kind == _VARINT:
                _, at = _varint(data, at)
            elif kind in _SIZES:
                at += _SIZES[kind]
            else:
                raise _malformed()
        self._num_fields, self._next_at = num_fields, at + offset
        self._rest, self._rest_at = data[at:], offset + min(at, len(data))


def split_messages(data: bytes | bytearray, number: int) -> tuple[bytes, list[slice]]:
    """A message less its fields of one number, which are messages, and where in `data` those are.

    Raises:
        InputError: it is no protobuf.
    """
    rest: list[bytes] = []
    messages: list[slice] = []
    at = rest_at = 0
    while at < len(data):
        field_at = at
        try:
            tag, at = _varint(data, at)
            kind = tag & 7
            length, at = _varint(data, at) if kind in (_BYTES, _VARINT) else (_SIZES.get(kind, 0), at)
        except IndexError:
            raise _malformed() from None
        value_at = at
        at += 0 if kind == _VARINT else length
        if kind not in (_VARINT, _BYTES, _FIXED64, _FIXED32) or at > len(data):
            raise _malformed()
        if tag == number << 3 | _BYTES:
            messages.append(slice(value_at, at))
            rest.append(bytes(data[rest_at:field_at]))
            rest_at = at
    rest.append(bytes(data[rest_at:]))
    return b"".join(rest), messages


def fields_before(data: bytes, number: int) -> bytes:
    """The fields of a message that stand before those of one number, as far as its beginning has them whole.

    Raises:
        InputError: it is no protobuf.
    """
    field_at = at = 0
    while at <= len(data):
        field_at = at
        try:
            tag, at = _varint(data, at)
            kind = tag & 7
            length, at = _varint(data, at) if kind in (_BYTES, _VARINT) else (_SIZES.get(kind, 0), at)
        except IndexError:
            break
        if tag >> 3 == number:
            break
        if kind not in (_VARINT, _BYTES, _FIXED64, _FIXED32):
            raise _malformed()
        at += 0 if kind == _VARINT else length
    return data[:field_at]


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    value = byte & 127
    for shift in range(7, 70, 7):
        at += 1
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
    raise _malformed()


@cache
def _nested(message: Descriptor) -> dict[int, Any]:
    return {field.number: inner for field in message.fields if (inner := _inner(field)) is not None}


def _inner(field: FieldDescriptor) -> dict[int, Any] | None:
    if field.message_type is not None:
        return _nested(field.message_type)
    return _PACKED if field.is_packed else None


def _too_many(max_fields: int) -> TooLargeError:
    return TooLargeError(
        f"the request has more than {max_fields} fields, of datums, tensors and others; send fewer datums at a time"
    )


def _malformed() -> InputError:
    return InputError("the body is not a ForwardBackwardRequest in protobuf")


@dataclass(slots=True)
class ValueCounter:
    """Counts lists and objects, and values by the commas between them, outside of texts."""

    max_containers: int = 2**16
    max_values: int = 2**20
    _num_containers: int = 0
    _num_values: int = 0
    _is_in_text: bool = False
    _rest: bytes = b""
    """The backslash that the last bytes ended with: what follows is not what it seems."""

    def feed(self, data: bytes) -> None:
        """Take more bytes.

        Raises:
            TooLargeError: there are too many.
        """
        data = self._rest + data
        self._rest = b""
        if b"\\" in data:
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
            if data.endswith(b"\\"):
                data, self._rest = data[:-1], b"\\"
        if self._is_in_text or b'"' in data:
            parts = data.split(b'"')
            outside = b"".join(parts[self._is_in_text :: 2])
            self._is_in_text ^= len(parts) % 2 == 0
        else:
            outside = data
        self._num_containers += outside.count(b"[") + outside.count(b"{")
        self._num_values += outside.count(b",")
        for what, number, most in (
            ("lists and objects", self._num_containers, self.max_containers),
            ("values", self._num_values, self.max_values),
        ):
            if number > most:
                raise TooLargeError(f"the request has more than {most} {what}; send less at a time")
