"""Catches files on their way between workers that stay for ever, or go too early."""

from pathlib import Path

from cookhouse.engine.contract import Account, Fetch, LoraSpec
from cookhouse.server.pool.transfer_files import TransferFiles


def add(files: TransferFiles, name: str, num_bytes: int) -> Path:
    url = files.url(name)
    folder = Path(url.removeprefix("file://"))
    folder.mkdir()
    account = Account("me", "")
    files.add(
        Fetch(command_id="", account=account, snapshot_id=name, base_model="b", lora=LoraSpec(), url=url), num_bytes
    )
    return folder


def test_the_oldest_go_that_nobody_uses(tmp_path: Path) -> None:
    files = TransferFiles(tmp_path / "files", 25)
    folders = {name: add(files, name, 10) for name in "abcd"}
    assert files.make_room({"a"}) == ["b", "c"]
    assert [name for name, folder in folders.items() if folder.exists()] == ["a", "d"]
    assert files.fetch("b") is None
    assert files.make_room(set()) == []


def test_the_newest_stays_whatever_it_takes(tmp_path: Path) -> None:
    """Would catch weights that are written, deleted, and written again for every sample."""
    files = TransferFiles(tmp_path / "files", 5)
    add(files, "a", 10)
    assert files.make_room(set()) == []


def test_what_a_lost_worker_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """Would catch weights that can never be moved again, since a part of them lies where they are to be written."""
    files = TransferFiles(tmp_path / "files", 5)
    assert files.url("a") != files.url("a")
