"""A user's own adapter against the suite of its port: a whole one passes, one with a fault is told which promise."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cookhouse.blobs import Blob, BlobStore, LocalBlobStore
from cookhouse.errors import InputError
from cookhouse.models.hub import HubClient, HubPart, NoopHub
from cookhouse.testing import BlobContract, HubContract, failures_of


class Renamed:
    """Somebody's own store: no class of ours above it."""

    def __init__(self, folder: Path) -> None:
        self.inner = LocalBlobStore(folder)

    def put(self, key: str, content: bytes | Path) -> Blob:
        return self.inner.put(key, content)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def fetch(self, key: str, path: Path) -> None:
        self.inner.fetch(key, path)

    def exists(self, key: str) -> bool:
        return self.inner.exists(key)

    def list(self, prefix: str = "") -> Sequence[str]:
        return self.inner.list(prefix)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def address(self, key: str) -> str:
        return self.inner.address(key)


class Escapes(Renamed):
    def put(self, key: str, content: bytes | Path) -> Blob:
        assert isinstance(content, bytes)
        (Path("/nowhere") / key).name.encode()
        return Blob(key=key, num_bytes=len(content), sha256="0")


class Forgets(Renamed):
    def delete(self, key: str) -> None:
        if not self.exists(key):
            raise InputError(f"no {key}")


class Silent(Renamed):
    def get(self, key: str) -> bytes:
        return self.inner.get(key) if self.inner.exists(key) else b""


class Partial(Renamed):
    def fetch(self, key: str, path: Path) -> None:
        path.write_bytes(b"")
        path.write_bytes(self.inner.get(key))


class Unordered(Renamed):
    def list(self, prefix: str = "") -> Sequence[str]:
        return [key for key in reversed(self.inner.list()) if key.startswith(prefix)]


def failures(store: type[Renamed]) -> set[str]:
    class Suite(BlobContract):
        def make(self) -> BlobStore:
            return store(self.folder())

    return set(failures_of(Suite()))


@pytest.mark.parametrize(
    ("store", "broken"),
    [
        (Renamed, set()),
        (Forgets, {"test_deletes"}),
        (Silent, {"test_a_missing_blob_is_an_input_error"}),
        (Partial, {"test_a_missing_blob_is_an_input_error"}),
        (Unordered, {"test_lists_in_order"}),
    ],
)
def test_a_store_of_ones_own(store: type[Renamed], broken: set[str]) -> None:
    assert failures(store) == broken


def test_a_store_that_takes_any_key_breaks_more_than_that() -> None:
    assert "test_a_key_that_escapes_is_refused" in failures(Escapes)


def test_a_hub_of_ones_own() -> None:
    class Forgetful:
        def __init__(self) -> None:
            self.inner = NoopHub()

        def find(self, name: str, part: HubPart) -> Path | None:
            found = self.inner.find(name, part)
            return None if part is HubPart.TOKENIZER else found

        def download(self, name: str, part: HubPart) -> Path:
            return self.inner.download(name, part)

        def upload(self, folder: Path, name: str, *, private: bool = True) -> str:
            return self.inner.upload(folder, name, private=private)

    class Suite(HubContract):
        def make(self) -> HubClient:
            return Forgetful()

    assert failures_of(Suite()) == {"test_finds_what_was_downloaded": "find gives the tokenizer once it was downloaded"}


def test_suites_load_what_their_port_needs_and_no_more() -> None:
    import subprocess
    import sys

    code = (
        "import sys, cookhouse.testing; assert not {'torch', 'tinker', 'cookhouse.blobs'} & set(sys.modules);"
        "cookhouse.testing.BlobContract; assert not {'torch', 'tinker'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
