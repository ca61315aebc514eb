"""The driver of Ray's workers, as the server has it; a small program in its place."""

import sys
from pathlib import Path

from cookhouse.engine.transports.ray.workers import RayWorkers
from tests.engine.transports.calls import options, reason, run
from tests.waiting import wait_until

_LOSING = """
import socket, sys, time
from cookhouse.engine.contract import Lost
from cookhouse.engine.transports.messages import Receiver, encode
control = socket.socket(fileno=int(sys.argv[-1]))
next(Receiver(control, waits=True).read())
(descriptor,) = socket.recv_fds(control, 1, 1)[1]
worker = socket.socket(fileno=descriptor)
control.shutdown(socket.SHUT_RDWR)
time.sleep(0.5)
worker.sendall(b"".join(encode(Lost(worker="w1", reason="Ray's head is gone"))))
"""
"""Loses the cluster with its first worker, and says so a little later."""


def test_a_driver_that_lost_the_cluster_has_its_last_words(tmp_path: Path) -> None:
    """Would catch workers that are told of a kill, and of memory, where the next driver was made too soon."""

    async def test() -> None:
        with RayWorkers(command=(sys.executable, "-c", _LOSING)) as workers:
            worker = workers(options(tmp_path))
            first = workers.pid

            def is_replaced() -> bool:
                workers.start()
                return workers.pid != first

            wait_until(is_replaced)
            assert await reason(worker) == "Ray's head is gone"
            await worker.close(0)

    run(test())
