"""Folders of weights that the journal needs, each written whole under an id that the server drew, and never changed.

states/<id>      what models are brought back from
samplers/<id>    published weights of samplers
loads/<id>       files of a checkpoint that a model was loaded from: the checkpoint may be deleted since
"""

import logging
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from cookhouse.files import make_folder, sync
from cookhouse.server.storage.store.aside import put_aside

_log = logging.getLogger(__name__)
_DELETED = ".deleted"


class JournalFolders:
    """Blocking but for the paths; from any thread."""

    def __init__(self, state_dir: Path) -> None:
        self._states = state_dir / "states"
        self._samplers = state_dir / "samplers"
        self._loads = state_dir / "loads"

    def make(self) -> None:
        for folder in (self._states, self._samplers, self._loads):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def state(self, state_id: str) -> Path:
        return self._states / state_id

    def new_state(self, state_id: str) -> Path:
        """Folder to which a state is to be written; `keep_state` gives it its name. A start deletes what has none."""
        return self._states / f".{state_id}"

    def keep_state(self, state_id: str) -> None:
        """Give a state its name that was written whole, before a row says so. Raises OSError: the disk failed."""
        self.new_state(state_id).rename(self.state(state_id))
        sync(self._states)

    def sampler(self, snapshot_id: str) -> Path:
        return self._samplers / snapshot_id

    def new_sampler(self, snapshot_id: str) -> Path:
        """Folder for published weights to be written to, each time another; `keep_sampler` gives them their name."""
        return self._samplers / f".{snapshot_id}.{uuid.uuid4().hex}"

    def keep_sampler(self, snapshot_id: str, written: Path) -> None:
        """Give weights their name that were written whole, or delete them where it is taken: they are the same.

        Raises:
            OSError: the disk failed.
        """
        try:
            written.rename(self.sampler(snapshot_id))
        except OSError:
            if not self.sampler(snapshot_id).exists():
                raise
            self.delete(written)
        sync(self._samplers)

    def load(self, load_id: str) -> Path:
        return self._loads / load_id

    def link(self, source: Path, target: Path) -> None:
        """Give the files of a folder, which never change, second names in a new one, all or none. A target that another
        thread has made meanwhile stays.

        Raises:
            OSError: the disk is full, or failed otherwise.
        """
        unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            link_files(source, unfinished)
            unfinished.rename(target)
        except OSError:
            if not target.exists():
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        sync(target.parent)

    def sampler_bytes(self, snapshot_ids: Collection[str] | None = None) -> Mapping[str, int]:
        """Bytes that published weights take, by id: of these, or of all, those that have files."""
        folders = self._samplers.iterdir() if snapshot_ids is None else map(self.sampler, snapshot_ids)
        return {
            folder.name: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders if folder.exists()
        }

    def delete(self, *folders: Path) -> None:
        """Delete folders: gone at once for who looks for them; those that are not there are left alone."""
        for folder in folders:
            try:
                shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}{_DELETED}")))
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("%s cannot be deleted, and will be at the next start: %s", folder, error)

    def found(self) -> Sequence[Path]:
        """All folders there are."""
        return [path for folder in (self._states, self._samplers, self._loads) for path in folder.iterdir()]

    def sweep(self, needed: Collection[Path], *, found: Sequence[Path] | None = None) -> None:
        """Delete what was never finished, or is being deleted, and put aside what else is not needed. `found`: only of
        these.
        """
        needed, strays = set(needed), dict[Path, list[Path]]()
        for path in self.found() if found is None else found:
            if path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)
            elif path not in needed:
                strays.setdefault(path.parent, []).append(path)
        for folder, paths in strays.items():
            put_aside(folder, paths)


def link_files(source: Path, folder: Path) -> None:
    """Give files that never change second names in a new folder; copy them where that cannot be."""
    make_folder(folder)
    for file in source.iterdir():
        try:
            (folder / file.name).hardlink_to(file)
        except OSError:
            shutil.copyfile(file, folder / file.name)
            sync(folder / file.name)
    sync(folder)
