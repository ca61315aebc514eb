"""A worker in a process of its own, which ends with this one: however this process dies, the end of the socket ends it.

It is in a session of its own, so that Ctrl-C in a terminal reaches only the server, which then ends it in order.
"""

import socket
import subprocess
import sys
from collections.abc import Sequence

from cookhouse.engine.transports.connected import Connected

CHILD_COMMAND = (sys.executable, "-m", "cookhouse.engine")
_STDERR = 2


class Child(Connected):
    """Implements `Worker`. Its process starts at once and imports; `begin` sends its role."""

    def __init__(self, command: Sequence[str] = CHILD_COMMAND) -> None:
        """`command` is followed by the number of the socket's descriptor."""
        ours, self._child = start_child(command)
        super().__init__(ours, self._child)

    @property
    def pid(self) -> int:
        return self._child.pid

    def discard(self) -> None:
        """End a process that has not been told what to be."""
        self._child.kill()
        self._child.wait()
        self._sender.close()
        self._socket.close()


def start_child(command: Sequence[str]) -> "tuple[socket.socket, subprocess.Popen[bytes]]":
    """Start a process that has the other end of a socket, whose descriptor's number is its last argument."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,  # what is said on our own stdout may be read by a program
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
    return ours, process
