"""Snapshots of weights for samplers, within budgets of memory and disk.

    made ──► in memory ──least recently used──► in a file as well ──► in a file ──sampled from──► in memory ...
                                                                          │
                                                  over the budget of disk └──► dropped, if it can go

Clients never say that they are done with a sampler. What can go is therefore what they are least likely to ask for:
weights after which others of the same model were published, and those that a checkpoint still has, unless samples of
them are under way. Among these the ones used least recently go first. A client that does ask for dropped weights is
told so, never given others; weights of a checkpoint are read from there again.

Everything here runs in the engine's thread, but for the writing and deleting of files. A snapshot that was put away is
read back when it is sampled from, with the same weights to the bit. The files belong to the process: they go with their
session, and at the next start. While files cannot be written no snapshot may be added, and those that there are can all
be sampled from.
"""

import logging
import shutil
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from pathlib import Path

from cookhouse.engine.contract import DamagedError, LoraSpec
from cookhouse.engine.engine import Engine
from cookhouse.engine.files.checksums import checksums, verify
from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.files import make_folder

_log = logging.getLogger(__name__)

_LEAST_BYTES = 2**20
"""What a file counts at least, so that there are not too many of them."""
_DISK_SHARE = 2
"""Files of snapshots leave this part of the disk, one in so many, to checkpoints."""
_WAY_OUT = "raise --max-snapshot-file-bytes of the server (COOKHOUSE_MAX_SNAPSHOT_FILE_BYTES)"


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """Weights that samples read."""

    snapshot_id: str
    owner: str
    base_model: str
    lora: LoraSpec
    model_id: str | None = None
    """The model that published them, if they were not read from files."""
    folder: Path | None = None
    """The files that they were read from."""
    sha256: Mapping[str, str] | None = None
    """Digests of these files, by name; None: they are not compared."""
    num_samples: int = 0
    """Samples of them under way."""
    is_superseded: bool = False
    """Whether the model has published others since."""
    error: Exception | None = None
    """Why there are none, or none any more."""


@dataclass(slots=True, kw_only=True)
class _Held:
    snapshot: Snapshot
    num_bytes: int
    has_file: bool = False
    sha256: Mapping[str, str] | None = None
    """Of its file."""
    writing: "Future[Mapping[str, str]] | None" = None

    @property
    def file_bytes(self) -> int:
        return max(self.num_bytes, _LEAST_BYTES)

    @property
    def takes_disk(self) -> bool:
        return self.has_file or self.writing is not None

    @property
    def can_go(self) -> bool:
        folder = self.snapshot.folder
        is_elsewhere = folder is not None and folder.exists()
        return self.snapshot.num_samples == 0 and (self.snapshot.is_superseded or is_elsewhere)


class Snapshots:
    """`max_bytes` bounds what is in memory, but for the one used last and for two more while files cannot be written;
    `max_file_bytes`, and half of the disk, what is in files.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int,
        max_file_bytes: int,
        writer: Executor,
        on_written: Callable[[], None] = lambda: None,
        on_dropped: Callable[[Snapshot], None] = lambda _: None,
    ) -> None:
        """Delete what an earlier process left in the folder.

        `writer` has one thread; `on_written` is called there after each file, to have `tidy` called. `on_dropped` is
        told of what cannot be sampled from any more.
        """
        shutil.rmtree(folder, ignore_errors=True)
        self._folder = folder
        self._max_bytes = max_bytes
        self._max_file_bytes = max_file_bytes
        self._writer = writer
        self._on_written = on_written
        self._on_dropped = on_dropped
        self._held: OrderedDict[str, _Held] = OrderedDict()
        """By id, used last at the end."""
        self._in_memory: OrderedDict[str, _Held] = OrderedDict()
        """Those in memory, in the same order."""
        self._file_bytes = 0
        self._newest: dict[str, Snapshot] = {}
        """By model."""
        self._failure: CookhouseError | None = None
        """Why files cannot be written; they are tried again for the next snapshot."""

    @property
    def must_wait(self) -> bool:
        """True if one more has to wait for files that are being written."""
        return self._memory_bytes > self._max_bytes and bool(self._writing)

    def admit(self, engine: Engine) -> None:
        """Make room for one more in memory; waits for files that are being written.

        Raises:
            InputError: there is no room in files either.
            ServiceError: files cannot be written.
        """
        self._failure = None
        self.tidy(engine)
        while self._memory_bytes > self._max_bytes and (writing := self._writing):
            self._finish_write(writing[0])
            self.tidy(engine)
        if self._failure is not None and self._memory_bytes > self._max_bytes:
            raise self._failure

    def add(self, engine: Engine, snapshot: Snapshot) -> None:
        """Take over a snapshot that the engine has just made."""
        name = snapshot.snapshot_id
        self._held[name] = self._in_memory[name] = _Held(snapshot=snapshot, num_bytes=engine.snapshot_bytes(name))
        if snapshot.model_id is not None:
            if snapshot.model_id in self._newest:
                self._newest[snapshot.model_id].is_superseded = True
            self._newest[snapshot.model_id] = snapshot
        self.tidy(engine)

    def use(self, engine: Engine, snapshot: Snapshot) -> None:
        """See to it that the engine holds a snapshot, which is about to be sampled from.

        Raises:
            InputError: it was dropped, and the checkpoint that it came from has been deleted.
            DamagedError: its files are not what was written.
            OSError: its file cannot be read.
        """
        name = snapshot.snapshot_id
        held = self._held.get(name)
        if held is None:
            self._read(engine, snapshot)
            return
        is_away = name not in self._in_memory
        if is_away:
            try:
                verify(self._folder / name, held.sha256)
                engine.load_snapshot(name, snapshot.base_model, snapshot.lora, self._folder / name)
            except DamagedError as error:
                self.free(engine, held.snapshot)
                if snapshot.folder is None:
                    snapshot.error = error
                    raise
                self._read(engine, snapshot)
                return
            self._in_memory[name] = held
        self._held.move_to_end(name)
        self._in_memory.move_to_end(name)
        if is_away:
            self.tidy(engine)

    def _read(self, engine: Engine, snapshot: Snapshot) -> None:
        """Read weights that are not held from the files that they came from."""
        folder = snapshot.folder
        if folder is None or not folder.exists():
            raise InputError("the checkpoint of this sampling client has been deleted; make one of another")
        verify(folder, snapshot.sha256)
        engine.load_snapshot(snapshot.snapshot_id, snapshot.base_model, snapshot.lora, folder)
        self.add(engine, snapshot)

    def free(self, engine: Engine, snapshot: Snapshot) -> None:
        """Forget a snapshot, in memory and on disk; one that is not held is left alone."""
        if snapshot.model_id is not None and self._newest.get(snapshot.model_id) is snapshot:
            del self._newest[snapshot.model_id]
        name = snapshot.snapshot_id
        held = self._held.pop(name, None)
        if held is None:
            return
        if self._in_memory.pop(name, None) is not None:
            engine.delete_snapshot(name)
        if held.writing is not None:
            held.writing.cancel()
        if held.takes_disk:
            self._file_bytes -= held.file_bytes
            self._writer.submit(_delete, self._folder / name)  # after its writing, in the one thread

    def tidy(self, engine: Engine) -> None:
        """Put away what exceeds the budget; samples under way keep their weights until they are done."""
        self._put_away(engine)
        while done := [held for held in self._writing if held.writing is not None and held.writing.done()]:
            for held in done:
                self._finish_write(held)
            self._put_away(engine)

    def _put_away(self, engine: Engine) -> None:
        """Free the memory of what has a file, and have files written of the rest."""
        for name, held in list(self._in_memory.items())[:-1]:
            if self._memory_bytes - sum(held.num_bytes for held in self._writing) <= self._max_bytes:
                return
            if name not in self._held or held.writing is not None:  # dropped for another, or on its way
                continue
            if held.has_file:
                engine.delete_snapshot(name)
                del self._in_memory[name]
            elif self._failure is None and self._find_room(engine, held) and name in self._held:
                self._write(engine, held)

    @property
    def _memory_bytes(self) -> int:
        return sum(held.num_bytes for held in self._in_memory.values())

    @property
    def _writing(self) -> list[_Held]:
        return [held for held in self._in_memory.values() if held.writing is not None]

    def _find_room(self, engine: Engine, wanted: _Held) -> bool:
        """Drop what can go until there is room for one more file, `wanted` itself if it is the first that can; whether
        there is room.
        """
        while wanted.snapshot.snapshot_id in self._held:
            try:
                free = shutil.disk_usage(self._folder.parent).free
            except OSError as error:
                self._failure = self._cannot_write(error)
                return False
            most = min(self._max_file_bytes, (free + self._file_bytes) // _DISK_SHARE)
            if self._file_bytes + wanted.file_bytes <= most:
                return True
            victim = self._victim(wanted, is_too_large=wanted.file_bytes > most)
            if victim is None:
                self._failure = InputError(
                    f"weights of sampling clients take {_show(self._file_bytes)} in files, of {_show(most)} that they "
                    f"may, and there is no room for {_show(wanted.file_bytes)} more: all are in use or the newest of "
                    f"their model; end sessions, free space on the disk, or {_WAY_OUT}"
                )
                return False
            self._drop(engine, victim, most)
        return True

    def _victim(self, wanted: _Held, *, is_too_large: bool) -> _Held | None:
        """The snapshot that goes first: of the tenant whose files take the most, the one used least recently. Never the
        one used last, which is about to be sampled from.
        """
        if is_too_large:
            return wanted if wanted.can_go else None
        totals: Counter[str] = Counter()
        for held in self._held.values():
            totals[held.snapshot.owner] += held.file_bytes if held.takes_disk else 0
        others = list(self._held.values())[:-1]
        can_go = [held for held in others if (held.takes_disk or held is wanted) and held.can_go]
        return max(can_go, key=lambda held: totals[held.snapshot.owner], default=None)

    def _drop(self, engine: Engine, held: _Held, most: int) -> None:
        snapshot = held.snapshot
        self.free(engine, snapshot)
        if snapshot.folder is None:
            snapshot.error = InputError(
                "the weights of this sampling client are gone: newer ones of the same model have been published, "
                f"unnamed weights may take {_show(most)} in files, and these were used least recently; save weights "
                f"that you come back to under a name (save_weights_for_sampler), or {_WAY_OUT}"
            )
            self._on_dropped(snapshot)

    def _write(self, engine: Engine, held: _Held) -> None:
        name = held.snapshot.snapshot_id

        save = engine.copy_snapshot(name, is_durable=False)

        def write() -> Mapping[str, str]:
            make_folder(self._folder, exist_ok=True)
            save(self._folder / name)
            return checksums(self._folder / name)

        self._file_bytes += held.file_bytes
        held.writing = self._writer.submit(write)
        held.writing.add_done_callback(lambda _: self._on_written())

    def _finish_write(self, held: _Held) -> None:
        """Take note of how the writing of a file ended; waits for it."""
        assert held.writing is not None
        try:
            error = held.writing.exception()
        except CancelledError as canceled:
            error = canceled
        held.sha256 = held.writing.result() if error is None else None
        held.writing = None
        held.has_file = error is None
        if error is not None:
            self._file_bytes -= held.file_bytes
            self._failure = self._cannot_write(error)

    def _cannot_write(self, error: BaseException) -> ServiceError:
        _log.warning("weights of a sampling client cannot be put away: %s", error)
        reason = (isinstance(error, OSError) and error.strerror) or error
        failure = ServiceError(
            f"weights of sampling clients cannot be put away in {self._folder}: {reason}; free space there, or end "
            "sessions"
        )
        failure.__cause__ = error
        return failure


def _delete(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return  # it was never written
    except OSError as error:
        _log.warning("weights of a sampling client cannot be deleted: %s", error)


def _show(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**27 else f"{num_bytes / 2**20:.2f} MiB"
