"""Saves of models: copied in memory in their turn, and written by a thread of its own while the engine goes on.

Weights for other libraries, and training state that does not fit into memory twice, keep the engine waiting.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path

from cookhouse.engine.contract import CanceledError, Done, Event, Save, Saved
from cookhouse.engine.engine import Engine
from cookhouse.engine.worker.failing import failed
from cookhouse.engine.worker.folders import Folders, file_sizes

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
        self._waiting: dict[str, tuple[Save, Future[None]]] = {}

    @property
    def are_full(self) -> bool:
        """Whether no copy may be made before one has been written."""
        return len(self._waiting) >= MAX_COPIES

    def save(self, engine: Engine, command: Save) -> Saved | None:
        """Write a model; None: its copy waits to be written, and the answer is told then."""
        folder = self._folders.new(command.url)
        model_id = command.model_id
        if command.form == "peft":
            engine.save_peft(model_id, folder, base_name=command.base_name)
            return _saved(command, folder)
        if command.form == "weights":
            engine.snapshot(model_id, command.command_id)
            write: Callable[[Path], None] = partial(engine.save_snapshot, command.command_id, is_durable=True)
        else:
            copied = engine.copy_state(model_id, with_optimizer=command.with_optimizer)
            if copied is None:
                engine.save_state(model_id, folder, with_optimizer=command.with_optimizer)
                return _saved(command, folder)
            write = copied
        future: Future[None] = Future()
        self._waiting[command.command_id] = command, future
        self._writer.submit(self._write, command, write, folder, future)
        return None

    def finish(self, engine: Engine, command_id: str) -> None:
        """Free the copy of a save that has been answered."""
        command, _ = self._waiting.pop(command_id)
        if command.form == "weights":
            engine.delete_snapshot(command_id)

    def cancel(self, command_id: str) -> None:
        """Leave out the writing of a copy, if it has not begun."""
        if command_id in self._waiting:
            self._waiting[command_id][1].cancel()

    def _write(self, command: Save, write: Callable[[Path], None], folder: Path, future: "Future[None]") -> None:
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


def _saved(command: Save, folder: Path) -> Saved:
    return Saved(url=command.url, form=command.form, sizes=file_sizes(folder))
