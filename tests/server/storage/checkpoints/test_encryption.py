"""Catches files that others can read, that their readers cannot, or that are cut off."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyrage
import pytest
from tests.server.conftest import OpenStore
from tests.server.storage.checkpoints.test_external_weights import EXTERNAL, fill

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.checkpoints import encryption
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.encryption import encrypt_files, parse_recipients

SSH = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOQpAljdAksBHN1DLLKF3aXHNgU2VNdrcRyY1EpQPSdj somebody"

LOW_ORDER = "age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq5cu47z"
"""The point 0: its shared secret with any key is 0."""


def test_every_reader_reads_every_file(tmp_path: Path) -> None:
    """Would catch a file left in the clear, one that is not complete, and a second key that opens nothing."""
    contents = {"adapter_config.json": b"{}", "adapter_model.safetensors": os.urandom(3 * 65_536 + 17), "empty": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    readers = [pyrage.x25519.Identity.generate() for _ in range(2)]
    encrypt_files(tmp_path, parse_recipients([str(reader.to_public()) for reader in readers]))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.age" for name in sorted(contents)]
    for name, content in contents.items():
        encrypted = (tmp_path / f"{name}.age").read_bytes()
        for reader in readers:
            assert pyrage.decrypt(encrypted, [reader]) == content
        with pytest.raises(pyrage.DecryptError):
            pyrage.decrypt(encrypted, [pyrage.x25519.Identity.generate()])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], "has 0 keys; give 1 to 64, or leave it out"),
        ([SSH] * 65, "has 65 keys"),
        (["age1qqqq"], r"recipients\[0\], 'age1qqqq', cannot be encrypted to"),
        ([SSH, "AGE-SECRET-KEY-1"], r"recipients\[1\], 'AGE-SECRET-KEY-1'"),
        (["ssh-rsa AAAA"], "allowed are public keys of age"),
        (["ssh-ed25519 " + "A" * 100_000], "it has 100012 characters"),
        (["age1\0\N{SNOWMAN}"], "cannot be encrypted to"),
        (["age1\ud800"], "cannot be encrypted to"),
        ([LOW_ORDER], "it cannot be a key"),
        (["ssh-rsa AAAAB3NzaC1yc2EAAAABAAAAAAEA"], "it cannot be a key"),
        (["AGE-SECRET-KEY-1QQQ"], r"recipients\[0\], 'AGE-SECRET-KEY-1', cannot"),
    ],
)
def test_what_is_no_public_key_is_refused(keys: list[str], message: str) -> None:
    """Would catch files that nobody can read, or all can, a request that makes headers of any size, and a secret key in
    an answer.
    """
    with pytest.raises(InputError, match=message):
        parse_recipients(keys)


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_full_disk_is_told_and_leaves_nothing(
    size: int, tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a small file that is cut off in silence: pyrage writes its end when nobody listens any more."""

    class FullDisk(encryption._Output):
        def write(self, _data: bytes) -> int:
            self.error = OSError(errno.ENOSPC, "No space left on device")
            raise self.error

    def fill_with(folder: Path) -> None:
        folder.mkdir()
        (folder / "adapter").write_bytes(os.urandom(size))

    checkpoints = Checkpoints(tmp_path / "checkpoints", open_store(tmp_path / "server.db"))
    new = replace(EXTERNAL, recipients=parse_recipients([SSH]))
    with monkeypatch.context() as patches:
        patches.setattr(encryption, "_Output", FullDisk)
        with pytest.raises(StorageError, match="No space left"):
            checkpoints.write(new, fill_with)
    assert list((tmp_path / "checkpoints").iterdir()) == []
    row = checkpoints.write(new, fill_with)
    assert [path.name for path in checkpoints.folder_of(row).iterdir()] == ["adapter.age"]


def test_a_checkpoint_knows_its_encrypted_files(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch digests of files that are no longer there, so that a copy of the checkpoint fails."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", open_store(tmp_path / "server.db"))
    row = checkpoints.write(replace(EXTERNAL, recipients=parse_recipients([SSH])), fill)
    sizes: Any = {path.name: path.stat().st_size for path in checkpoints.folder_of(row).iterdir()}
    assert sorted(row.sha256 or {}) == sorted(sizes) == ["a b?.safetensors.age", "adapter_config.json.age"]
    assert row.size_bytes == sum(sizes.values())
