"""Blob stores by name: a folder of this machine, a cloud by whatever file system of fsspec knows the URL, or one of the
user's own.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeGuard

from cookhouse.blobs.store import BlobStore, Content, SummedBlobStore
from cookhouse.errors import InputError, ServiceError, UnknownNameError
from cookhouse.extras import install_command
from cookhouse.files import unwritable
from cookhouse.naming import OpenSet, build

BlobStoreBuilder: TypeAlias = Callable[[], BlobStore]
"""Makes a blob store."""

_METHODS = ("put", "get", "fetch", "exists", "list", "delete", "address")

BLOB_STORES: OpenSet[BlobStoreBuilder] = OpenSet(
    kind="blob store",
    group="cookhouse.blob_stores",
    builtin={"noop": "cookhouse.blobs.noop:NoopBlobStore"},
    check=lambda thing: thing if callable(thing) else (lambda: thing) if is_blob_store(thing) else None,
    wants="a blob store has the methods of cookhouse.blobs.BlobStore, or is named by a function that makes one",
)
EXTRAS: Mapping[str, str | None] = MappingProxyType(
    {
        "s3": "s3",
        "s3a": "s3",
        "gs": "gcs",
        "gcs": "gcs",
        "az": "azure",
        "abfs": "azure",
        "abfss": "azure",
        "memory": None,
    }
)
"""The extra of cookhouse that brings the package for a scheme; None: nothing is needed."""


def is_blob_store(thing: object) -> TypeGuard[BlobStore]:
    """True if it has the methods of one."""
    return not isinstance(thing, type) and all(callable(getattr(thing, method, None)) for method in _METHODS)


def open_blobs(place: str) -> BlobStore:
    """The blob store of a folder, a URL (`s3://`, `gs://`, `az://`, `file://`), or a name of `BLOB_STORES`.

    Raises:
        UnknownNameError: there is no such scheme, or no such name in a module.
        InputError: the package of the scheme is missing, or what has the name makes no blob store.
    """
    if place.startswith("file://"):
        return LocalBlobStore(place.removeprefix("file://"))
    if "://" in place:
        return FsspecBlobStore(place)
    holder, colon, _ = place.rpartition(":")
    names_code = bool(colon) and (holder.endswith(".py") or "/" not in holder)  # no module has a slash in its name
    if not names_code and place not in BLOB_STORES.names():
        return LocalBlobStore(Path(place))
    return build(BLOB_STORES, place, is_blob_store)


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


class FsspecBlobStore(SummedBlobStore):
    """A `BlobStore` below a URL such as `s3://bucket/folder`. Whole objects are written at once, as object stores do.

    Keys, regions and endpoints come from where the provider's own package finds them (environment, its config
    files), or from `options`, which go to its file system: `FsspecBlobStore("s3://bucket", endpoint_url="http://127.0.0.1:9000")`.

    Raises:
        InputError: the scheme is unknown, its package is missing, or it takes no such options.
    """

    def __init__(self, url: str, **options: Any) -> None:
        scheme, colon, path = url.partition("://")
        if not colon or scheme not in EXTRAS:
            raise UnknownNameError("scheme of a blob store", scheme, EXTRAS, way_out="or name a folder")
        if scheme != "memory" and not path.strip("/"):
            raise InputError(f"{url!r} names no bucket; write {scheme}://BUCKET or {scheme}://BUCKET/FOLDER")
        self._url = url.rstrip("/")
        self._files, self._root = _file_system(self._url, scheme, options)

    def address(self, key: str) -> str:
        return f"{self._url}/{key}"

    def _write(self, key: str, content: Content) -> None:
        with self._errors():
            if isinstance(content, bytes):
                self._files.pipe_file(self._path(key), content)
            else:
                self._files.put_file(str(content), self._path(key))

    def _read(self, key: str) -> bytes:
        with self._errors():
            return bytes(self._files.cat_file(self._path(key)))

    def _copy_to(self, key: str, path: Path) -> None:
        with self._errors():
            self._files.get_file(self._path(key), str(path))

    def _has(self, key: str) -> bool:
        with self._errors():
            self._files.invalidate_cache()
            return bool(self._files.isfile(self._path(key)))

    def _keys(self, prefix: str) -> Sequence[str]:
        with self._errors():
            self._files.invalidate_cache()  # others put blobs too, and it remembers listings
            found = self._files.find(self._path(prefix) if prefix else self._root)
        root = self._root.rstrip("/") + "/"
        return [path.removeprefix(root) for path in found]

    def _remove(self, key: str) -> None:
        with self._errors():
            self._files.rm_file(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (InputError, ServiceError):
            raise
        except (FileNotFoundError, PermissionError) as error:
            reason = error.strerror or str(error)
            raise InputError(f"{self._url} cannot be used: {reason}; see that it exists, and that you may") from error
        except Exception as error:  # each provider's package has exceptions of its own
            if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"):
                raise InputError(f"{self._url} cannot be used: {error}; log in as its provider says") from error
            raise ServiceError(f"the blob store at {self._url} failed: {type(error).__name__}: {error}") from error


def _file_system(url: str, scheme: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of a URL, and the path of the URL in it."""
    import fsspec

    try:
        files, root = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        extra = EXTRAS[scheme]
        assert extra is not None, f"{scheme}:// needs no package"
        raise InputError(f"{scheme}:// needs a package that is not installed: {install_command(extra)}") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{url} cannot be opened: {error}") from error
    return files, str(root)
