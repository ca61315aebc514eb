"""Catches files on their way between workers that stay for ever, or go too early."""

from pathlib import Path

from cookhouse.engine.contract import Account, Fetch, LoraSpec
from cookhouse.server.pool.moves import Moves


def add(moves: Moves, name: str, num_bytes: int) -> Path:
    url = moves.url(name)
    folder = Path(url.removeprefix("file://"))
    folder.mkdir()
    account = Account("me", "")
    moves.add(
        Fetch(command_id="", account=account, snapshot_id=name, base_model="b", lora=LoraSpec(), url=url), num_bytes
    )
    return folder


def test_the_oldest_go_that_nobody_uses(tmp_path: Path) -> None:
    moves = Moves(tmp_path / "moves", 25)
    folders = {name: add(moves, name, 10) for name in "abcd"}
    assert moves.make_room(lambda name: name == "a") == ["b", "c"]
    assert [name for name, folder in folders.items() if folder.exists()] == ["a", "d"]
    assert moves.fetch("b") is None
    assert moves.make_room(lambda _: False) == []


def test_the_newest_stays_whatever_it_takes(tmp_path: Path) -> None:
    """Would catch weights that are written, deleted, and written again for every sample."""
    moves = Moves(tmp_path / "moves", 5)
    add(moves, "a", 10)
    assert moves.make_room(lambda _: False) == []


def test_what_a_lost_worker_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """Would catch weights that can never be moved again, since a part of them lies where they are to be written."""
    moves = Moves(tmp_path / "moves", 5)
    assert moves.url("a") != moves.url("a")
