"""Saves of models and snapshots: copied in memory in their turn, written by a thread while the engine goes on.

Weights for other libraries, and training state that does not fit into memory twice, keep the engine waiting.
"""

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

from cookhouse.engine.contract import CanceledError, Done, Event, Form, Save, Saved, SaveSnapshot
from cookhouse.engine.engine import Engine
from cookhouse.engine.files.checksums import checksums
from cookhouse.engine.worker.failing import failed
from cookhouse.engine.worker.folders import Folders, file_sizes

MakeWriter = Callable[[str], Executor]


def thread_writer(name: str) -> ThreadPoolExecutor:
    """One thread that writes files in order."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=_use_any_core)


def _use_any_core() -> None:
    """Free this thread of the core of the one that started it: the engine's is bound to its own."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))


MAX_COPIES = 4
"""Copies of weights that may wait for the disk."""


class Saves:
    """`tell` is called with the answer of a save, in the writer's thread; `on_written` there after it."""

    def __init__(
        self, folders: Folders, writer: Executor, *, tell: Callable[[Event], None], on_written: Callable[[str], None]
    ) -> None:
        self._folders = folders
        self._writer = writer
        self._tell = tell
        self._on_written = on_written
        self._waiting: dict[str, tuple[Save | SaveSnapshot, Future[None]]] = {}

    @property
    def are_full(self) -> bool:
        """True if no copy may be made before one has been written."""
        return len(self._waiting) >= MAX_COPIES

    def save(self, engine: Engine, command: Save) -> Saved | None:
        """Write a model; None: its copy waits to be written, and the answer is sent then."""
        folder = self._folders.new(command.url)
        model_id = command.model_id
        if command.form == "external":
            engine.save_external(model_id, folder, base_name=command.base_name)
            return _saved(command, folder)
        if command.form == "weights":
            engine.snapshot(model_id, command.command_id)
            self._put(command, engine.copy_snapshot(command.command_id, is_durable=True), folder)
            return None
        parts = {"with_optimizer": command.with_optimizer, "with_gradient": command.with_gradient}
        copied = engine.copy_state(model_id, **parts)
        if copied is None:
            engine.save_state(model_id, folder, **parts)
            return _saved(command, folder)
        self._put(command, copied, folder)
        return None

    def save_snapshot(self, engine: Engine, command: SaveSnapshot) -> None:
        """Have a snapshot written that the engine holds."""
        write = engine.copy_snapshot(command.snapshot_id, is_durable=True)
        self._put(command, write, self._folders.new(command.url))

    def finish(self, engine: Engine, command_id: str) -> None:
        """Free the copy of a save that has been answered."""
        command, _ = self._waiting.pop(command_id)
        if isinstance(command, Save) and command.form == "weights":
            engine.delete_snapshot(command_id)

    def cancel(self, command_id: str) -> None:
        """Leave out the writing of a copy, if it has not begun."""
        if command_id in self._waiting:
            self._waiting[command_id][1].cancel()

    def _put(self, command: Save | SaveSnapshot, write: Callable[[Path], None], folder: Path) -> None:
        future: Future[None] = Future()
        self._waiting[command.command_id] = command, future
        self._writer.submit(self._write, command, write, folder, future)

    def _write(
        self, command: Save | SaveSnapshot, write: Callable[[Path], None], folder: Path, future: "Future[None]"
    ) -> None:
        """Runs in the writer's thread."""
        try:
            if not future.set_running_or_notify_cancel():
                raise CanceledError("the save was canceled before it was written")
            write(folder)
            event: Event = Done(command_id=command.command_id, output=_saved(command, folder))
        except Exception as error:
            event = failed(command.command_id, error)
        self._tell(event)
        self._on_written(command.command_id)


def _saved(command: Save | SaveSnapshot, folder: Path) -> Saved:
    form: Form = command.form if isinstance(command, Save) else "weights"
    return Saved(url=command.url, form=form, sizes=file_sizes(folder), sha256=checksums(folder))
