"""Has rows written soon that are only listed: the other servers list them, too."""

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Listing:
    """A thread of its own: what is written may wait for a lock, or for the network."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._is_stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write_soon(self) -> None:
        """From any thread."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no further write. What is being written goes on."""
        self._is_stopped = True
        self._wake.set()

    def _run(self) -> None:
        while self._wake.wait() and not self._is_stopped:
            self._wake.clear()
            try:
                self._flush()
            except Exception:  # they wait, and go with the next
                _log.exception("rows could not be written")
