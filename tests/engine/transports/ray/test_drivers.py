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

_CHOOSING = """
import pathlib, socket, sys
from cookhouse.engine.transports.messages import Receiver, encode
control = socket.socket(fileno=int(sys.argv[-1]))
told = next(Receiver(control, waits=True).read())
pathlib.Path(sys.argv[1]).open("a").write(f"{told['bundles']}\\n")
control.sendall(b"".join(encode(("w1", {"CPU": 3.0}))))
"""
"""Chooses what a worker takes, and ends."""


def test_the_next_driver_is_told_what_workers_had(tmp_path: Path) -> None:
    """Would catch a worker of another size, and with other numbers, after the head of Ray's was lost."""
    told = tmp_path / "told"
    with RayWorkers(command=(sys.executable, "-c", _CHOOSING, str(told))) as workers:

        def lines() -> list[str]:
            workers.start()
            return told.read_text().splitlines() if told.exists() else []

        wait_until(lambda: len(lines()) > 1)
    assert told.read_text().splitlines()[:2] == ["{}", "{'w1': {'CPU': 3.0}}"]


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
