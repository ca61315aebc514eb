"""Snapshots of weights for samplers, within a budget of memory: the ones used least recently are kept in files instead.

Everything here runs in the engine's thread. A snapshot that was put away is read back when it is sampled from, with the
same weights to the bit. The files belong to the process: they go with their session, and at the next start.
"""

import shutil
from collections import OrderedDict
from pathlib import Path

from cookhouse.engine.contract import Engine
from cookhouse.server.sessions import Snapshot


class Snapshots:
    """`max_bytes` bounds what is in memory; the one used last stays there whatever its size."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """What an earlier process left in the folder is deleted."""
        shutil.rmtree(folder, ignore_errors=True)
        self._folder = folder
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """Bytes of each in memory, by id, used last at the end."""

    def add(self, engine: Engine, snapshot: Snapshot) -> None:
        """Take over a snapshot that the engine has just made; `trim` keeps to the budget later."""
        snapshot.is_made = True
        self._sizes[snapshot.snapshot_id] = engine.snapshot_bytes(snapshot.snapshot_id)

    def use(self, engine: Engine, snapshot: Snapshot) -> None:
        """See to it that the engine holds a snapshot, which is about to be sampled from.

        Raises:
            OSError: its file cannot be read, or another's cannot be written.
        """
        name = snapshot.snapshot_id
        if name not in self._sizes:
            engine.load_snapshot(name, snapshot.base_model, snapshot.lora, self._folder / name)
            self.add(engine, snapshot)
            self.trim(engine)
        self._sizes.move_to_end(name)

    def trim(self, engine: Engine) -> None:
        """Put away what exceeds the budget; samples under way keep their weights until they are done.

        Raises:
            OSError: a file cannot be written; that snapshot stays in memory.
        """
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._max_bytes:
            name = next(iter(self._sizes))
            if not (self._folder / name).exists():  # a snapshot never changes
                self._folder.mkdir(exist_ok=True)
                engine.save_snapshot(name, self._folder / name)
            engine.delete_snapshot(name)
            del self._sizes[name]

    def free(self, engine: Engine, snapshot: Snapshot) -> None:
        """Forget a snapshot, in memory and on disk; one that was never made is left alone."""
        if self._sizes.pop(snapshot.snapshot_id, None) is not None:
            engine.delete_snapshot(snapshot.snapshot_id)
        folder = self._folder / snapshot.snapshot_id
        if folder.exists():
            shutil.rmtree(folder)
