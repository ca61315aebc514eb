"""The far end of a worker's socket, in the process that is not the server's."""

import socket
import threading
from pathlib import Path

from cookhouse.engine.contract import Logged
from cookhouse.engine.transports.child_process import Pipe
from tests.waiting import wait_until


def test_one_that_hung_up_leaves_neither_thread_nor_descriptor() -> None:
    """Would catch a driver that has a thread and a socket more for each worker that filled its own once."""
    num_descriptors, threads = len(list(Path("/proc/self/fd").iterdir())), set(threading.enumerate())
    ours, theirs = socket.socketpair()
    pipe = Pipe(theirs, lambda _: None)
    pipe.tell([Logged(name="log", level=20, message="x" * 2**22)])
    assert any(thread.name == "sender" for thread in set(threading.enumerate()) - threads)
    with ours:
        rest = 2**22
        while rest > 0:
            rest -= len(ours.recv(2**16))
        pipe.close()
    wait_until(lambda: not set(threading.enumerate()) - threads)
    assert len(list(Path("/proc/self/fd").iterdir())) == num_descriptors
