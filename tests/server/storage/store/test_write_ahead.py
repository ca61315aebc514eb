"""Catches a damaged log, of which SQLite drops the end without a word, and a sound one that is taken for damaged."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.server.storage.store.store import open_own
from cookhouse.server.storage.store.write_ahead import log_damage

FRAME = 24 + 4096


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed process leaves, whose last of many transactions were in the log alone."""
    folder = tmp_path_factory.mktemp("crashed")
    file = folder / "open.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE kept (number, content)")
        for number in range(20):
            if number == 10:  # the log begins anew, and is longer than what it holds
                connection.execute("PRAGMA wal_checkpoint(RESTART)")
            connection.execute("INSERT INTO kept VALUES (?, ?)", (number, os.urandom(3000)))
        for name in ("", "-wal", "-shm"):
            shutil.copy(f"{file}{name}", folder / f"server.db{name}")
    return folder


def num_frames(folder: Path) -> int:
    """Those that count."""
    return int.from_bytes((folder / "server.db-shm").read_bytes()[16:20], "little")


def flipped(crashed: Path, into: Path, place: Callable[[int], int], *, with_index: bool) -> Path:
    shutil.copytree(crashed, into)
    log = into / "server.db-wal"
    content = bytearray(log.read_bytes())
    content[place(num_frames(into))] ^= 0x10
    log.write_bytes(content)
    if not with_index:
        (into / "server.db-shm").unlink()
    return into / "server.db"


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda _: 0, id="magic"),
        pytest.param(lambda _: 17, id="salt"),
        pytest.param(lambda _: 30, id="header"),
        pytest.param(lambda _: 32 + 2 * FRAME + 9, id="salt of a frame"),
        pytest.param(lambda _: 32 + 2 * FRAME + 17, id="sum"),
        pytest.param(lambda _: 32 + 3 * FRAME + 500, id="page"),
        pytest.param(lambda last: 32 + last * FRAME - 1, id="last frame"),
    ],
)
def test_a_flipped_bit_is_told(
    crashed: Path, tmp_path: Path, place: Callable[[int], int], request: pytest.FixtureRequest, *, with_index: bool
) -> None:
    file = flipped(crashed, tmp_path / "copy", place, with_index=with_index)
    is_last = "last frame" in request.node.name
    assert (log_damage(file) is None) == (is_last and not with_index)  # it might be one that a power cut has torn


def test_a_server_does_not_start_over_a_damaged_log(crashed: Path, tmp_path: Path) -> None:
    file = flipped(crashed, tmp_path / "copy", lambda _: 40, with_index=True)
    with pytest.raises(InputError, match=r"server.db-wal, where the newest rows of .* lie, is damaged: frame 1 of the"):
        open_own(file)


@pytest.mark.parametrize("num_bytes", [0, 20, 32, 32 + FRAME, 32 + 2 * FRAME + 100])
def test_what_a_power_cut_leaves_is_no_damage(crashed: Path, tmp_path: Path, num_bytes: int) -> None:
    shutil.copytree(crashed, tmp_path / "copy")
    (tmp_path / "copy" / "server.db-shm").unlink()  # it is in memory only
    os.truncate(tmp_path / "copy" / "server.db-wal", num_bytes)
    assert log_damage(tmp_path / "copy" / "server.db") is None


def test_a_sound_log_is_no_damage(crashed: Path) -> None:
    assert log_damage(crashed / "server.db") is None
    assert log_damage(crashed / "no.db") is None
