"""Suite that every blob store passes."""

import hashlib
from collections.abc import Callable
from functools import partial

from cookhouse.blobs import BlobStore
from cookhouse.errors import CookhouseError, InputError
from cookhouse.testing.contract import Contract, require

_ESCAPES = (
    "",
    "/etc/passwd",
    "../out",
    "a/../../out",
    "a//b",
    "./a",
    "a/.hidden",
    "a\\b",
    "a\nb",
    "a\x00b",
    "k" * 300,
    "k/" * 300 + "k",
)


class BlobContract(Contract[BlobStore]):
    """The suite of `cookhouse.blobs.BlobStore`. `make` gives an empty store."""

    def test_gives_back_what_was_put(self) -> None:
        store = self.make()
        for key, content in {"a": b"one", "deep/er/b.bin": bytes(range(256)), "empty": b""}.items():
            blob = store.put(key, content)
            require(store.get(key) == content, f"get gives the bytes that were put under {key}")
            promised = (blob.key, blob.num_bytes, blob.sha256)
            measured = (key, len(content), hashlib.sha256(content).hexdigest())
            require(promised == measured, f"put gives key, size and SHA-256: {measured}, not {promised}")

    def test_takes_and_gives_files(self) -> None:
        store, folder = self.make(), self.folder()
        content = b"line\n" * 100_000
        (folder / "in").write_bytes(content)
        blob = store.put("file", folder / "in")
        require(blob.num_bytes == len(content), "put of a file gives its size")
        require(store.get("file") == content, "a file that was put is there")
        store.fetch("file", folder / "out")
        require((folder / "out").read_bytes() == content, "fetch writes what was put")
        require(sorted(path.name for path in folder.iterdir()) == ["in", "out"], "fetch leaves no other files")

    def test_put_replaces(self) -> None:
        store = self.make()
        store.put("a", b"the first, and longer")
        store.put("a", b"second")
        require(store.get("a") == b"second", "a second put under a key replaces the first, whole")
        require(list(store.list()) == ["a"], "a key is listed once")

    def test_lists_in_order(self) -> None:
        store = self.make()
        require(list(store.list()) == [], "an empty store lists nothing")
        for key in ("runs/b/2", "runs/a/1", "runs/ab/3", "other"):
            store.put(key, b"x")
        require(list(store.list()) == ["other", "runs/a/1", "runs/ab/3", "runs/b/2"], "list names every key, in order")
        require(
            list(store.list("runs/a")) == ["runs/a/1"], "list of a prefix names the keys below it, and not beside it"
        )
        require(list(store.list("nothing")) == [], "list of a prefix without keys names none")

    def test_deletes(self) -> None:
        store = self.make()
        store.put("a", b"x")
        store.put("b", b"y")
        require(store.exists("a"), "exists says so of what was put")
        store.delete("a")
        require(not store.exists("a"), "a deleted blob does not exist")
        require(list(store.list()) == ["b"], "a deleted blob is not listed, and the others stay")

    def test_a_missing_blob_is_an_input_error(self) -> None:
        store, folder = self.make(), self.folder()
        require(not store.exists("missing"), "exists says no of what was never put")
        for name, call in _uses(store, "missing"):
            _refused(call, "missing", f"{name} of a missing blob")
        _refused(lambda: store.fetch("missing", folder / "out"), "missing", "fetch of a missing blob")
        require(not list(folder.iterdir()), "a fetch that fails leaves no file")

    def test_a_key_that_escapes_is_refused(self) -> None:
        store = self.make()
        for key in _ESCAPES:
            for name, call in _uses(store, key):
                _refused(call, "", f"{name} of the key {key[:20]!r}")
            _refused(partial(store.put, key, b"x"), "", f"put under the key {key[:20]!r}")
        require(list(store.list()) == [], "a refused key leaves nothing")

    def test_a_missing_file_is_refused(self) -> None:
        store = self.make()
        _refused(lambda: store.put("a", self.folder() / "nothing"), "nothing", "put of a file that is not there")
        require(not store.exists("a"), "a put that fails leaves no blob")

    def test_addresses_differ(self) -> None:
        store = self.make()
        require(store.address("a") != store.address("b"), "each key has an address of its own")
        require("some-key" in store.address("some-key"), "the address of a blob names its key")


def _uses(store: BlobStore, key: str) -> list[tuple[str, Callable[[], object]]]:
    return [("get", partial(store.get, key)), ("delete", partial(store.delete, key))]


def _refused(call: Callable[[], object], named: str, what: str) -> None:
    try:
        call()
    except InputError as error:
        require(named in str(error), f"{what} is refused with an error that names it, not with {str(error)!r}")
    except CookhouseError as error:
        require(False, f"{what} is the caller's error, an InputError, not {type(error).__name__}: {error}")
    else:
        require(False, f"{what} is refused with an InputError, and was not")
