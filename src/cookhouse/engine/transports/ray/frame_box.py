"""Frames that wait to be taken by another thread."""

import threading
from collections.abc import Iterator, Sequence

from cookhouse.engine.transports.messages import Pieces


class FrameBox:
    """Put in from any thread, taken by one. What comes while one is being sent goes with the next."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._pieces: Pieces = []
        self._is_closed = False

    def put(self, pieces: Sequence[memoryview]) -> None:
        with self._wake:
            if not self._is_closed:
                self._pieces += pieces
                self._wake.notify()

    def close(self) -> None:
        """Take nothing more; what is there can still be taken."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    def take(self) -> Iterator[bytes]:
        """All frames that there are, joined, each time there are some; it ends when the box is closed and empty."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._pieces or self._is_closed)
                pieces, self._pieces = self._pieces, []
            if not pieces:
                return
            yield b"".join(pieces)
