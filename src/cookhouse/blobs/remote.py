"""Blobs in a cloud, by whatever file system of fsspec knows the URL."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cookhouse.blobs.store import Content, SummedBlobStore
from cookhouse.errors import InputError, ServiceError, UnknownNameError
from cookhouse.extras import install_command

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
