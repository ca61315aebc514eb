"""Every blob store of ours keeps the contract; what is damaged, escapes or lacks its package is told."""

import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cookhouse.blobs import (
    BlobStore,
    FsspecBlobStore,
    LocalBlobStore,
    NoopBlobStore,
    fetch_folder,
    open_blobs,
    put_folder,
)
from cookhouse.errors import InputError, ServiceError, UnknownNameError
from cookhouse.testing import BlobContract


class TestLocal(BlobContract):
    def make(self) -> BlobStore:
        return LocalBlobStore(self.folder() / "made-when-needed")


class TestMemory(BlobContract):
    """The file system of fsspec that needs no package."""

    def make(self) -> BlobStore:
        return FsspecBlobStore(f"memory://{uuid4().hex}")


class TestNoop(BlobContract):
    def make(self) -> BlobStore:
        return NoopBlobStore()


class TestS3(BlobContract):
    """The real `s3fs` against a server on loopback."""

    @pytest.fixture(autouse=True)
    def _server(self, s3: str) -> None:
        self.endpoint = s3

    def make(self) -> BlobStore:
        return FsspecBlobStore(f"s3://bucket/{uuid4().hex}", endpoint_url=self.endpoint)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a server of the S3 protocol that has one bucket."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    import fsspec

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("AWS_") or name.lower().endswith("_proxy"):
                patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # All servers of a process have the same buckets.
        fsspec.filesystem("s3", endpoint_url=f"http://{host}:{port}").makedirs("bucket", exist_ok=True)
        yield f"http://{host}:{port}"
    server.stop()


def test_a_bucket_that_is_not_there_is_named(s3: str) -> None:
    with pytest.raises(InputError, match="s3://no-such-bucket cannot be used: The specified bucket does not exist"):
        FsspecBlobStore("s3://no-such-bucket", endpoint_url=s3).put("a", b"x")


def test_damage_is_seen_and_is_the_stores(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    store.put("runs/a.bin", b"whole")
    (tmp_path / "runs/a.bin").write_bytes(b"whale")
    with pytest.raises(ServiceError, match=r"runs/a\.bin is damaged: its SHA-256 is .* and .* was put"):
        store.get("runs/a.bin")
    with pytest.raises(ServiceError, match="is damaged"):
        store.fetch("runs/a.bin", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sums_are_those_of_sha256sum_and_what_others_put_is_read(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    store.put("a/b.bin", b"x")
    assert (tmp_path / "a/b.bin.sha256").read_text() == f"{hashlib.sha256(b'x').hexdigest()}  b.bin\n"
    (tmp_path / "theirs").write_bytes(b"y")
    assert store.get("theirs") == b"y"
    assert store.list() == ["a/b.bin", "theirs"]


def test_blobs_are_as_readable_as_other_files_here(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    LocalBlobStore(tmp_path).put("a", b"x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("key")
    root = tmp_path / "store"
    root.mkdir()
    (root / "link").symlink_to(outside)
    store = LocalBlobStore(root)
    for call in (lambda: store.get("link/secret"), lambda: store.put("link/new", b"x")):
        with pytest.raises(InputError, match="leads out of"):
            call()
    assert not (outside / "new").exists()


def test_a_write_that_breaks_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalBlobStore(tmp_path)
    store.put("a", b"old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ServiceError, match="No space left"):
        store.put("a", b"new")
    monkeypatch.undo()
    assert store.get("a") == b"old"
    assert store.list() == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("scheme", "module", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs"), ("az", "adlfs", "azure")]
)
def test_a_missing_package_names_its_extra(
    scheme: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec  # noqa: F401  loads its registry, which remembers what it imported

    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)
    with pytest.raises(InputError, match=rf"{scheme}:// needs a package .* install .*\[{extra}\]"):
        open_blobs(f"{scheme}://bucket/x")


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("s4://bucket", UnknownNameError, "unknown scheme of a blob store 's4'; did you mean s3"),
        ("http://host/x", UnknownNameError, "unknown scheme of a blob store 'http'"),
        ("s3://", InputError, "names no bucket; write s3://BUCKET"),
        ("own.py:nothing", InputError, "there is no file own.py"),
        ("cookhouse.errors:InputError", InputError, "made an InputError; a blob store has the methods"),
        ("cookhouse.errors:__doc__", InputError, "not a blob store; a blob store has the methods"),
    ],
)
def test_a_place_that_is_no_store_is_refused(place: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        open_blobs(place)


def test_stores_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "from cookhouse.blobs import NoopBlobStore\ndef make():\n    return NoopBlobStore()\n"
    )
    assert isinstance(open_blobs("own.py:make"), NoopBlobStore)
    assert isinstance(open_blobs("noop"), NoopBlobStore)
    assert isinstance(open_blobs("memory://x"), FsspecBlobStore)
    for place in ("blobs", str(tmp_path / "blobs"), f"file://{tmp_path / 'blobs'}"):
        store = open_blobs(place)
        assert store.address("a") == str(tmp_path / "blobs/a")


def test_a_folder_goes_and_comes_back(tmp_path: Path) -> None:
    source = tmp_path / "run"
    (source / "samples").mkdir(parents=True)
    (source / "samples/0.json").write_text("[]")
    (source / "metrics.jsonl").write_text("{}")
    (source / "secret").write_text("key")
    (source / "link").symlink_to("/etc/passwd")
    store = NoopBlobStore()
    put = put_folder(store, source, "runs/run", wanted=lambda path: path.name != "secret")
    assert [blob.key for blob in put] == ["runs/run/metrics.jsonl", "runs/run/samples/0.json"]
    fetch_folder(store, "runs/run", tmp_path / "back")
    assert (tmp_path / "back/samples/0.json").read_text() == "[]"
    with pytest.raises(InputError, match="there are no blobs below synthetic://runs/other"):
        fetch_folder(store, "runs/other", tmp_path / "back")
