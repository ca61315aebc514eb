"""Blob stores: files under keys, on this machine or in a cloud."""

from cookhouse.blobs.folders import fetch_folder, put_folder
from cookhouse.blobs.named import BLOB_STORES, FsspecBlobStore, LocalBlobStore, open_blobs
from cookhouse.blobs.noop import NoopBlobStore
from cookhouse.blobs.store import Blob, BlobStore, DamagedBlobError, SummedBlobStore, check_key

__all__ = [
    "BLOB_STORES",
    "Blob",
    "BlobStore",
    "DamagedBlobError",
    "FsspecBlobStore",
    "LocalBlobStore",
    "NoopBlobStore",
    "SummedBlobStore",
    "check_key",
    "fetch_folder",
    "open_blobs",
    "put_folder",
]
