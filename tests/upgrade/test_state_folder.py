"""Catches a server that does not go on with a state folder, or a killed one's journal, of an older version."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints
from cookhouse.server.storage.store.clock import Clock
from tests.kills.server import KEYS, KeptServer
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.upgrade.client import Client
from tests.upgrade.folders import SETTINGS, VERSIONS, check_pending, unpack, weights
from tests.upgrade.make_folders import describe

pytestmark = pytest.mark.parametrize("version", VERSIONS)


@contextmanager
def served(state_dir: Path) -> Iterator[tuple[Client, Host]]:
    """A connection to a server over the fake engine, and that server."""
    with hosted(state_dir, FakeEngine, SETTINGS) as host, Client(host.url, KEY) as client:
        yield client, host


def test_a_state_folder_is_served_with_all_that_it_lists(version: str, tmp_path: Path) -> None:
    """Would catch a row, a usage or a published checkpoint that an upgrade loses, or shows to another tenant."""
    older = unpack(version, "served", tmp_path)
    known, state_dir = older.known, older.folder / "state"
    before, published, expiring = known["paths"]
    with served(state_dir) as (mine, host), Client(host.url, OTHER_KEY) as others:
        assert json.loads(json.dumps(describe(mine, known))) == known["described"]
        assert b"grad_norm" in mine.answer(known["unfetched"])
        assert others.get("/sessions")["sessions"] == [known["theirs"]["session_id"]]
        assert others.http.post("/weights_info", json={"tinker_path": before}).status_code == 404
        others.post("/weights_info", tinker_path=published)
        mine.answer(mine.send_sample(known["sampler_id"], 2))
        loaded = mine.loaded(mine.session(), 0, known["left"])
        late = itertools.count(known["expires_at"], 7200)
        host.service.storage.store.clock = Clock(system=lambda: known["expires_at"], uptime=lambda: next(late))
        listed = {kept["tinker_path"] for kept in mine.get("/checkpoints")["checkpoints"]}
        assert {before, published, known["left"], expiring} - listed == {expiring}
        again = str(json.loads(mine.answer(mine.send_save(loaded, 1, "again")))["path"])
    assert {kept.row.path for kept in stored_checkpoints(state_dir)} >= {before, published, known["left"], again}
    was, now = (weights(state_dir / "server.db", state_dir / "checkpoints", path) for path in (known["left"], again))
    assert was == now


def test_a_killed_servers_journal_runs_to_its_end(version: str, tmp_path: Path) -> None:
    """Would catch a kind of entry, or a state, that is read otherwise than it was written."""
    older = unpack(version, "killed", tmp_path)
    state_dir = older.folder / "state"
    with served(state_dir) as (client, _):
        check_pending(client, older.known, state_dir / "server.db", state_dir / "checkpoints")


@pytest.mark.slow
def test_the_engines_own_files_are_read(version: str, tmp_path: Path) -> None:
    """Would catch a state or a checkpoint of the engine's that trains on with other weights or moments."""
    older = unpack(version, "engine", tmp_path)
    state_dir = older.folder / "state"
    with KeptServer(older.folder) as server:
        server.wait_until_ready()
        with Client(server.url, KEYS[0]) as client:
            check_pending(client, older.known, state_dir / "server.db", state_dir / "checkpoints")
