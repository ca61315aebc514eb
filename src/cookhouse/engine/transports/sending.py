"""Sends frames over a socket and never waits for its other end."""

import socket
import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice

from cookhouse.engine.transports.messages import Pieces

_MAX_GATHERED = 1000
"""Pieces of one write: Linux takes 1024."""


class Sender:
    """Sends frames in order, from any thread. What the socket does not take at once, a thread of its own sends.

    Once the other end is closed, what is sent is dropped: reading shows the end.
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
            pieces = _after(pieces, num_bytes)
        return pieces


def _after(pieces: Pieces, num_bytes: int) -> Pieces:
    for index, piece in enumerate(pieces):
        if num_bytes < piece.nbytes:
            return [piece[num_bytes:], *pieces[index + 1 :]]
        num_bytes -= piece.nbytes
    return []
