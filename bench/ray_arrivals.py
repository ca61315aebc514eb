"""A worker for `bench.ray_publish` that has no engine: it says of weights how many bytes have arrived."""

import os
import queue
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cookhouse.engine.contract import Command, Done, Fetch, Room, Up, WorkerOptions
from cookhouse.engine.transports.child_process import Running, Tell
from cookhouse.engine.transports.ray.driver import run_driver


class Arrivals:
    def __init__(self, options: WorkerOptions, tell: Tell) -> None:
        self._options = options
        self._tell = tell
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()

    def submit(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._commands.put(command)

    def stop(self) -> None:
        self._commands.put(None)

    def run(self) -> None:
        room = Room(free_bytes=0, base_models=())
        self._tell([Up(worker=self._options.worker, base_models=(), description="no engine", room=room)])
        while (command := self._commands.get()) is not None:
            if isinstance(command, Fetch):
                folder = Path(self._options.folder, "files", command.url.rpartition("/")[2])
                num_bytes = sum(path.stat().st_size for path in folder.iterdir())
                self._tell([Done(command_id=command.command_id, output={"bytes": float(num_bytes)})])


def load() -> None:
    """Nothing is needed."""


def make(options: WorkerOptions, _: Mapping[str, Any], tell: Tell) -> Running:
    return Arrivals(options, tell)


if __name__ == "__main__":
    os._exit(run_driver(int(sys.argv[-1]), load, make))
