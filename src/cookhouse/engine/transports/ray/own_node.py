"""A node of a cluster on this machine that computes nothing, as long as the driver lives: Ray's drivers need one."""

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from ray._raylet import GcsClient  # to list nodes in public takes a node, or a dashboard

from cookhouse.engine.transports.ray.addresses import why_not_joined
from cookhouse.errors import InputError

_ALIVE = 0
_SET_DEATH_SIGNAL = 1
"""Of prctl."""
_START_SECONDS, _POLL_SECONDS, _END_SECONDS = 40.0, 0.2, 5.0


class OwnNode:
    """A node without cores and GPUs. It ends with this process, however that ends."""

    def __init__(self, address: str) -> None:
        """
        Raises:
            InputError: Ray does not start here.
        """
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={address}", "--block"]
        self._process = subprocess.Popen(
            [*words, "--num-cpus=0", "--num-gpus=0", "--disable-usage-stats"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            preexec_fn=_ends_with_parent(),
        )
        deadline = time.monotonic() + _START_SECONDS
        while not is_node(address):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise InputError(why_not_joined(address, "no node of it starts on this machine; the log says why"))
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """Leave the cluster."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_node(address: str) -> bool:
    """Whether this machine is a node of the cluster whose head is there."""
    nodes = GcsClient(address=address).get_all_node_info().values()
    return any(node.state == _ALIVE and _is_here(node.node_manager_address) for node in nodes)


def _is_here(host: str) -> bool:
    """Whether an address is one of this machine's: only those can be listened at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            return False
    return True


def _ends_with_parent() -> Callable[[], object]:
    """To be called in a child: it is killed with the thread that started it, and Ray's processes with it."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
