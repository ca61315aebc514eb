"""Snapshots of weights for samplers, within a budget of memory: the ones used least recently are kept in files instead.

Everything here runs in the engine's thread. A snapshot that was put away is read back when it is sampled from, with the
same weights to the bit. The files belong to the process: they go with their session, and at the next start. While the
disk is full no snapshot may be added, and those that there are can all be sampled from.
"""

import logging
import shutil
from collections import OrderedDict
from pathlib import Path

from cookhouse.engine.contract import Engine
from cookhouse.errors import ServiceError
from cookhouse.server.sessions import Snapshot

_log = logging.getLogger(__name__)


class Snapshots:
    """`max_bytes` bounds what is in memory, but for the one used last and for two more while the disk is full."""

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
            OSError: its file cannot be read.
        """
        name = snapshot.snapshot_id
        if name not in self._sizes:
            engine.load_snapshot(name, snapshot.base_model, snapshot.lora, self._folder / name)
            self.add(engine, snapshot)
            self._put_away(engine)
        self._sizes.move_to_end(name)

    def trim(self, engine: Engine) -> None:
        """Put away what exceeds the budget; samples under way keep their weights until they are done.

        Raises:
            ServiceError: files cannot be written; those snapshots stay in memory.
        """
        failure = self._put_away(engine)
        if failure is not None:
            raise ServiceError(
                f"weights of sampling clients cannot be put away in {self._folder}: {failure.strerror or failure}; "
                "free space there, or end sessions"
            ) from failure

    def free(self, engine: Engine, snapshot: Snapshot) -> None:
        """Forget a snapshot, in memory and on disk; one that was never made is left alone."""
        if self._sizes.pop(snapshot.snapshot_id, None) is not None:
            engine.delete_snapshot(snapshot.snapshot_id)
        folder = self._folder / snapshot.snapshot_id
        if folder.exists():
            shutil.rmtree(folder)

    def _put_away(self, engine: Engine) -> OSError | None:
        """Returns why what exceeds the budget is still in memory, if it is."""
        failure: OSError | None = None
        for name in list(self._sizes)[:-1]:
            if sum(self._sizes.values()) <= self._max_bytes:
                return None
            try:
                if not (self._folder / name).exists():  # a snapshot never changes
                    if failure is not None:
                        continue
                    self._folder.mkdir(exist_ok=True)
                    engine.save_snapshot(name, self._folder / name, is_durable=False)
            except OSError as error:
                _log.warning("weights of a sampling client cannot be put away: %s", error)
                failure = error
                continue
            engine.delete_snapshot(name)
            del self._sizes[name]
        return failure if sum(self._sizes.values()) > self._max_bytes else None
