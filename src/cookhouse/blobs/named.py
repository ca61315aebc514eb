"""Blob stores by name: a folder, a URL, or one of the user's own."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeGuard

from cookhouse.blobs.local import LocalBlobStore
from cookhouse.blobs.remote import FsspecBlobStore
from cookhouse.blobs.store import BlobStore
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
