"""A child over a small loop; the tests start it as a process of its own: `python -m ... DESCRIPTOR`."""

import logging
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cookhouse.engine.contract import (
    Command,
    Done,
    Event,
    ForwardBackwardOutput,
    Lost,
    Pass,
    Read,
    Room,
    Up,
    WorkerOptions,
)
from cookhouse.engine.transports.child_process import Tell, run_child
from cookhouse.errors import InputError


class Answering:
    """Answers a pass with its datums' tokens, does what the URL of a read says, and all else with None."""

    def __init__(self, options: WorkerOptions, engine_options: Mapping[str, Any], tell: Tell) -> None:
        self._worker = options.worker
        self._options = engine_options
        self._tell = tell
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()

    def submit(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._commands.put(command)

    def stop(self) -> None:
        self._commands.put(None)

    def run(self) -> None:
        if "refusal" in self._options:
            raise InputError(self._options["refusal"])
        if "note" in self._options:
            logging.getLogger("tests.child").warning("%s", self._options["note"])
        room = Room(free_bytes=0, base_models=())
        self._tell([Up(worker=self._worker, base_models=(), description="a fake", room=room)])
        while (command := self._commands.get()) is not None:
            self._tell([self._answer(command)])

    def _answer(self, command: Command) -> Event:
        output: Any = None
        if isinstance(command, Pass):
            output = ForwardBackwardOutput(
                logprobs_D=[datum.tokens_T.astype(np.float32) for datum in command.request.data_D], metrics={}
            )
        elif isinstance(command, Read):
            name, _, argument = command.url.partition(" ")
            output = getattr(self, f"do_{name}")(argument)
        return Done(command_id=command.command_id, output=output)

    def do_pid(self, _: str) -> bytes:
        return str(os.getpid()).encode()

    def do_sleep(self, seconds: str) -> None:
        time.sleep(float(seconds))

    def do_spin(self, _: str) -> None:
        while True:
            pass

    def do_exit(self, code: str) -> None:
        os._exit(int(code))

    def do_crash(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def do_raise(self, text: str) -> None:
        raise RuntimeError(text)

    def do_lose(self, reason: str) -> None:
        self._tell([Lost(worker="", reason=reason)])

    def do_leave(self, seconds: str) -> bytes:
        """Start a process that would inherit the socket, were it to be inherited."""
        program = f"import time; time.sleep({seconds})"
        left = subprocess.Popen([sys.executable, "-c", program], close_fds=False, stderr=subprocess.DEVNULL)
        return str(left.pid).encode()

    def do_slip(self, _: str) -> Mapping[str, float]:
        return {"a number of numpy's": np.float64(1.0)}

    def do_interrupt(self, _: str) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)


if __name__ == "__main__":
    os._exit(run_child(int(sys.argv[-1]), lambda: None, Answering))
