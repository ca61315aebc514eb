"""What a server is made of, imported in a thread beside the one that checks what it was asked to serve."""

import functools
import gc
import sys
import threading
from concurrent.futures import Future as ConcurrentFuture

from cookhouse.models.tokenizers import hide_notice_of_torch


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
        import cookhouse.server.app
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
