"""Catches files of a server that other users of the machine can read: what tenants sent and trained lies in them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tinker
from tests.contract.calls import new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted

from cookhouse.server.storage.store.private import make_private, private_folder
from cookhouse.server.storage.store.state_dir import lock_state_dir
from cookhouse.server.storage.store.store import Store


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    """A user who keeps nothing from others."""
    before = os.umask(0)
    yield
    os.umask(before)


def readable(folder: Path) -> dict[str, str]:
    """What others may read, write or enter there, with its mode; below a folder that they cannot enter, nothing."""
    found = {path.name: path.stat().st_mode for path in folder.iterdir()}
    return {name: oct(mode) for name, mode in found.items() if mode & 0o077}


def open_folders(folder: Path) -> dict[str, str]:
    """Those below a folder, however deep, that others may enter, should they ever stand elsewhere."""
    found = {path.relative_to(folder).as_posix(): path.stat().st_mode for path in folder.rglob("*") if path.is_dir()}
    return {name: oct(mode) for name, mode in found.items() if mode & 0o077}


def test_nobody_else_reads_the_state_of_a_server(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    with lock_state_dir(state_dir), hosted(state_dir, FakeEngine) as host:
        with tinker.ServiceClient(base_url=host.url, api_key=KEY) as client:
            trainer = new_trainer(client)
            train(trainer, 1)
            trainer.save_state("kept").result()
            trainer.save_weights_and_get_sampling_client().result()
            trainer.create_sampling_client(trainer.save_weights_for_sampler("too").result().path)
        assert {"server.db", "server.db-wal", "server.lock", "checkpoints"} <= {
            path.name for path in state_dir.iterdir()
        }
        assert readable(state_dir) == {}
        assert open_folders(state_dir) == {}
        assert [path.name for path in (state_dir / "checkpoints").iterdir()] != []
    assert readable(tmp_path) == {}


def test_what_an_older_version_left_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "server.db").touch()
    (tmp_path / "server.lock").touch()
    (tmp_path / "checkpoints").mkdir()
    assert len(readable(tmp_path)) == 3
    with lock_state_dir(tmp_path):
        Store(tmp_path / "server.db").close()
        private_folder(tmp_path / "checkpoints")
    assert readable(tmp_path) == {}


def test_a_file_that_cannot_be_made_is_left_to_whoever_opens_it(tmp_path: Path) -> None:
    make_private(tmp_path / "missing" / "server.db")
    assert not (tmp_path / "missing").exists()
