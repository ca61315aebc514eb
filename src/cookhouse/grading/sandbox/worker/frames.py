"""Messages over a stream socket: JSON, and possibly file descriptors.

Both ends are cookhouse's own; no program ever holds this socket.
"""

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("!I")
_MAX_FDS = 8


def send_frame(sock: socket.socket, header: dict[str, Any], fds: Sequence[int] = ()) -> None:
    data = json.dumps(header).encode()
    message = _LENGTH.pack(len(data)) + data
    if fds:
        sent = socket.send_fds(sock, [message], list(fds))
        message = message[sent:]
    sock.sendall(message)


def receive_frame(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """One message and the descriptors it brought; EOFError where the other end is gone."""
    first, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, _MAX_FDS)
    if not first:
        raise EOFError("the other end closed")
    first += _exactly(sock, _LENGTH.size - len(first))
    header: dict[str, Any] = json.loads(_exactly(sock, _LENGTH.unpack(first)[0]))
    return header, fds


def _exactly(sock: socket.socket, num_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < num_bytes:
        part = sock.recv(min(num_bytes - len(data), 1 << 20))
        if not part:
            raise EOFError("the other end closed in the middle of a message")
        data += part
    return bytes(data)
