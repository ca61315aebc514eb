"""A hub that makes its models up."""

import atexit
import shutil
import tempfile
from pathlib import Path

from cookhouse.assets import TINY_MODEL, resolve_model
from cookhouse.errors import InputError
from cookhouse.models.hub.port import HubPart, check_name

_CARD = """---
tags: [synthetic]
---
Made up by a no-op adapter of cookhouse: the files of {source} under the name {name}.
"""


class NoopHub:
    """A `HubClient` without a network: every name is a copy of the embedded model, and what is uploaded is kept in a
    folder, by default one that goes with the process. The model cards say that all of it is made up.
    """

    synthetic = True

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def find(self, name: str, part: HubPart) -> Path | None:
        del part
        folder = self._place(name)
        return folder if folder.is_dir() else None

    def download(self, name: str, part: HubPart) -> Path:
        found = self.find(name, part)
        if found is not None:
            return found
        folder = self._place(name)
        shutil.copytree(resolve_model(TINY_MODEL), folder)
        (folder / "README.md").write_text(_CARD.format(name=name, source=TINY_MODEL), encoding="utf-8")
        return folder

    def upload(self, folder: Path, name: str, *, private: bool = True) -> str:
        del private
        place = self._place(name)
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder} to upload as {name}")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)
        return f"synthetic://{name}"

    def _place(self, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="cookhouse-hub-"))
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / check_name(name).replace("/", "--")
