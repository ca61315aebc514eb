"""A server that was started before anybody knew what it is to serve: the client tells it later, over its stdin.

    client ── socket: one line of JSON {"arguments": [...], "environ": {...}}, with two open files ──► stdin
                lock   held by the process until it ends
                log    becomes stderr
           ── the end of the socket: nothing was needed, or no more ──► the process ends

Until then it has touched no folder.
"""

import json
import os
import socket
from collections.abc import MutableMapping

_STDIN, _STDERR = 0, 2
_CHUNK_BYTES = 65536
_NUM_FILES = 2


def wait_for_arguments(environ: MutableMapping[str, str]) -> list[str] | None:
    """The command line, once the client has said it; None: it has gone. Changes `environ` as the client says."""
    # A copy of the descriptor: stdin itself stays open, and is watched for its end.
    with socket.socket(fileno=os.dup(_STDIN)) as client:
        text = b""
        files: list[int] = []
        while not text.endswith(b"\n"):
            part, received, _, _ = socket.recv_fds(client, _CHUNK_BYTES, _NUM_FILES)
            if not part:
                return None
            text += part
            files += received
    _, log = files  # the lock is nobody's but the process's
    os.dup2(log, _STDERR)
    os.close(log)
    told = json.loads(text)
    environ.update(told["environ"])
    return list(told["arguments"])
