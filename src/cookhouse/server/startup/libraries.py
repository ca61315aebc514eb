"""Start of a server's process before anything heavy is imported.

Libraries load in a thread, and a server that was started early reads over its stdin what to serve.

    client ── socket: one line of JSON {"arguments": [...], "environ": {...}}, with two open files ──► stdin
                lock   held by the process until it ends
                log    becomes stderr
           ── the end of the socket: nothing was needed, or no more ──► the process ends

Until then it has touched no folder.
"""

import functools
import gc
import json
import os
import socket
import sys
import threading
from collections.abc import MutableMapping
from concurrent.futures import Future as ConcurrentFuture

from cookhouse.models.tokenizers import hide_notice_of_torch

_STDIN, _STDERR = 0, 2
_CHUNK_BYTES = 65536
_NUM_FILES = 2


@functools.cache
def loading() -> "ConcurrentFuture[None]":
    """Begin, the first time, and hand back what is done once FastAPI and the SDK are imported.

    Until then nobody else may import them: two threads that import a large library at a time may see half of it.
    """
    loaded: ConcurrentFuture[None] = ConcurrentFuture()
    threading.Thread(target=_load, args=(loaded,), name="libraries", daemon=True).start()
    return loaded


def _load(loaded: "ConcurrentFuture[None]") -> None:
    # Nearly all that imports make stays: looking through it for garbage would take a sixth of their time.
    gc.disable()
    try:
        import cookhouse.server.http.app
        import cookhouse.server.service  # noqa: F401
    except BaseException as error:
        loaded.set_exception(error)
    else:
        gc.freeze()
        loaded.set_result(None)
    finally:
        gc.enable()


def hide_torch() -> None:
    """Have nothing load torch in this process, which computes nothing. The SDK and transformers load it where they find
    it: twice the start, and three times the memory. Before either is imported.
    """
    sys.modules["torch"] = None  # type: ignore[assignment]
    hide_notice_of_torch()


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
    message = json.loads(text)
    environ.update(message["environ"])
    return list(message["arguments"])
