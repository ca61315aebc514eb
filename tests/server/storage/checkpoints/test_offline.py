"""Catches a state folder that is read or written in a way its server does not expect."""

from pathlib import Path

import pytest
from tests.server.conftest import OpenStore
from tests.server.hosting import KEY, OTHER_KEY

from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError
from cookhouse.server.access.auth import KeyRing
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.offline import add_checkpoint
from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.state_dir import is_state_dir, lock_state_dir


def add(state_dir: Path, *, name: str = "imported", key: str = KEY) -> CheckpointRow:
    files = state_dir / "files"
    files.mkdir(parents=True, exist_ok=True)
    (files / "adapter").write_text("weights")
    return add_checkpoint(
        state_dir, files, name=name, base_model="b", lora=LoraSpec(rank=3), api_key=key, source="/from/here"
    )


def test_what_is_added_belongs_to_the_tenant_of_the_key(tmp_path: Path, open_store: OpenStore) -> None:
    row = add(tmp_path)
    store = open_store(tmp_path / "server.db")
    checkpoints = Checkpoints(tmp_path / "checkpoints", store)
    owner = KeyRing([KEY]).owner_of(KEY)
    assert checkpoints.resolve(row.path, owner) == row
    assert (checkpoints.folder_of(row) / "adapter").read_text() == "weights"
    assert (row.kind, row.has_optimizer, row.size_bytes, row.lora_spec) == ("weights", False, 7, LoraSpec(rank=3))
    run = store.run(row.model_id, owner)
    assert run is not None
    assert (run.base_model, run.user_metadata) == ("b", {"imported_from": "/from/here"})
    with pytest.raises(NotFoundError):
        checkpoints.resolve(row.path, KeyRing([OTHER_KEY]).owner_of(OTHER_KEY))


def test_the_owner_of_the_folder_sees_every_tenant(tmp_path: Path, open_store: OpenStore) -> None:
    first, second = add(tmp_path), add(tmp_path, key=OTHER_KEY)
    store = open_store(tmp_path / "server.db")
    store.set_checkpoint_expiry(first.checkpoint_id, 1.0)
    kept = stored_checkpoints(tmp_path)
    assert [one.row.path for one in kept] == [first.path, second.path], "no server has deleted one yet"
    assert [(one.folder / "adapter").read_text() for one in kept] == ["weights", "weights"]


def test_a_running_server_is_not_disturbed(tmp_path: Path) -> None:
    """Would catch the removal of a folder that the server is writing: to it, that is what a crash leaves behind."""
    add(tmp_path)
    unfinished = tmp_path / "checkpoints" / ".half.new"
    unfinished.mkdir()
    with lock_state_dir(tmp_path):
        with pytest.raises(InputError, match="in use by another server"):
            add(tmp_path, name="second")
        assert len(stored_checkpoints(tmp_path)) == 1
    assert unfinished.exists()


def test_what_cannot_be_added_leaves_nothing(tmp_path: Path) -> None:
    for name, key, message in (("../x", KEY, "cannot name a checkpoint"), ("x", "secret", "starts with 'tml-'")):
        with pytest.raises(InputError, match=message):
            add(tmp_path, name=name, key=key)
    assert not is_state_dir(tmp_path) or stored_checkpoints(tmp_path) == []
    with pytest.raises(InputError, match=r"has no server\.db"):
        stored_checkpoints(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
