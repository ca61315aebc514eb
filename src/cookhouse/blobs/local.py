"""Blobs in a folder of this machine."""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cookhouse.blobs.store import Content, SummedBlobStore
from cookhouse.errors import InputError, ServiceError
from cookhouse.files import unwritable


class LocalBlobStore(SummedBlobStore):
    """A `BlobStore` in a folder, which is made when the first blob is put. The keys are paths below it."""

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder).expanduser().absolute()

    def check_writable(self) -> None:
        """Raises `InputError` where no blob could be put."""
        reason = unwritable(self._folder)
        if reason is None and self._folder.is_file():
            reason = "it is a file"
        if reason is not None:
            raise InputError(f"the blob store in {self._folder} cannot be written: {reason}; name another folder")

    def address(self, key: str) -> str:
        return str(self._folder / key)

    def _write(self, key: str, content: Content) -> None:
        path = self._path(key)
        with self._errors(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Beside its place, where no other file system lies between; read by nobody, since its name has a dot.
            part = path.with_name(f".part-{secrets.token_hex(8)}")
            try:
                with part.open("xb") as out:
                    if isinstance(content, bytes):
                        out.write(content)
                    else:
                        with content.open("rb") as source:
                            shutil.copyfileobj(source, out)
                    out.flush()
                    os.fsync(out.fileno())
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)

    def _read(self, key: str) -> bytes:
        with self._errors(key):
            return self._path(key).read_bytes()

    def _copy_to(self, key: str, path: Path) -> None:
        with self._errors(key):
            shutil.copyfile(self._path(key), path)

    def _has(self, key: str) -> bool:
        return self._path(key).is_file()

    def _keys(self, prefix: str) -> Sequence[str]:
        below = self._path(prefix) if prefix else self._folder
        return [path.relative_to(self._folder).as_posix() for path in below.rglob("*") if path.is_file()]

    def _remove(self, key: str) -> None:
        with self._errors(key):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        path = self._folder / key
        # A key has no `..`, and a link within the folder may lead out of it all the same.
        if not path.resolve().is_relative_to(self._folder.resolve()):
            raise InputError(f"{path} leads out of {self._folder}; remove the link, or choose another key")
        return path

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            raise InputError(
                f"{self.address(key)} cannot be written: a file and a folder would have one name; choose another key"
            ) from error
        except PermissionError as error:
            raise InputError(f"{self.address(key)} may not be read or written: {error.strerror}") from error
        except OSError as error:
            raise ServiceError(f"the blob store in {self._folder} failed: {error}") from error
