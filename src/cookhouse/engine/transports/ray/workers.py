"""Makes workers on Ray for a server, which itself never imports Ray."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from cookhouse.engine.contract import WorkerOptions
from cookhouse.engine.transports.child import start_child
from cookhouse.engine.transports.connected import Connected
from cookhouse.engine.transports.messages import Receiver, Sender, encode
from cookhouse.engine.transports.ray.addresses import LOCAL

DRIVER_COMMAND = (sys.executable, "-m", "cookhouse.engine.on_ray")
_EXIT_SECONDS = 15.0
_LAST_WORDS_SECONDS = 5.0
"""For a driver that has lost the cluster; it ends by itself after two."""
_DEATH_SECONDS = 0.2
"""From the end of a worker's socket to that of the driver, if it is that which ended."""


class RayWorkers:
    """Makes a worker on Ray's cluster whenever it is called; in a `with`, all end.

    They share one process, the driver. When that has ended, as it does with Ray's head, the next call starts another,
    which joins or starts the cluster anew.
    """

    def __init__(
        self,
        address: str = LOCAL,
        *,
        num_cpus: int | None = None,
        num_gpus: float | None = None,
        memory_bytes: int | None = None,
        num_workers: int = 1,
        command: Sequence[str] = DRIVER_COMMAND,
    ) -> None:
        """`address` is `HOST:PORT` of Ray's head, `auto` for the cluster that this machine is a node of, or `local`.

        Of a worker: `num_cpus` None is one with a GPU, and else as many as leave room for `num_workers`; `num_gpus`
        None is one, where the cluster has any; None of `memory_bytes` reserves none.
        """
        self.engine_options: Mapping[str, Any] = {}
        """What the engine of each is made with: see `TorchEngine`. Set before the first call."""
        self._told = {
            "address": address,
            "needs": {
                "num_cpus": num_cpus,
                "num_gpus": num_gpus,
                "memory_bytes": memory_bytes,
                "num_workers": num_workers,
            },
        }
        self._bundles: dict[str, Any] = {}
        """What workers have of nodes, by name: it stays where the driver that chose it has ended."""
        self._command = command
        self._driver: _Driver | None = None

    @property
    def pid(self) -> int | None:
        """The driver's, once there is one."""
        return None if self._driver is None else self._driver.process.pid

    def start(self) -> None:
        """Have the driver join the cluster; again does nothing."""
        if self._driver is not None and not self._driver.takes_workers(self._bundles):
            self._driver.give_up()
            self._driver = None
        if self._driver is None:
            self._driver = _Driver(self._command, {**self._told, "bundles": dict(self._bundles)})

    def __call__(self, options: WorkerOptions) -> Connected:
        self.start()
        assert self._driver is not None
        worker = self._driver.connect()
        worker.begin(options, self.engine_options)
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver is not None:
            self._driver.close()


class _Driver:
    """A driver's process, as we have it."""

    def __init__(self, command: Sequence[str], told: Mapping[str, Any]) -> None:
        self._control, self.process = start_child(command)
        self._sender = Sender(self._control)
        self._receiver = Receiver(self._control, waits=False)
        self._sender.send(encode(dict(told)))
        self._sender.flush()

    def connect(self) -> Connected:
        """A worker of the driver's, not told yet what to be."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):  # the driver has died; the worker finds its socket closed
            socket.send_fds(self._control, [b"\0"], [theirs.fileno()])
        return Connected(ours, _Share(ours, self.process), "Ray's driver")

    def takes_workers(self, bundles: dict[str, Any]) -> bool:
        """True if it has neither ended nor lost the cluster; the bundles that it has chosen are added."""
        try:
            for name, bundle in self._receiver.read():
                bundles[name] = bundle
        except EOFError:
            return False
        return self.process.poll() is None

    def give_up(self) -> None:
        """Take no more of it. It is given time to tell its workers why, while another takes its place."""
        threading.Thread(target=self.close, args=(_LAST_WORDS_SECONDS,), name="driver's end", daemon=True).start()

    def close(self, seconds: float = _EXIT_SECONDS) -> None:
        """End it in order, or at once where that takes longer."""
        self._sender.close()
        self._control.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True, slots=True)
class _Share:
    """A worker's share in the driver's process."""

    connection: socket.socket
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        """Hang up: the driver ends the worker then, whatever it does."""
        if self.connection.fileno() >= 0:
            self.connection.shutdown(socket.SHUT_RDWR)

    def wait(self, timeout: float | None = None) -> int:
        """The driver's exit code, where it has ended; the worker has, in any case."""
        try:
            return self.process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            if timeout is None:
                return 0
            raise
