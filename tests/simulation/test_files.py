"""Catches files in memory that do otherwise than a disk, or whose crash loses what it must not, or nothing ever."""

import random
from pathlib import Path

import pytest

from tests.simulation.files import Files, FolderFiles, MemoryFiles


@pytest.fixture(params=["folder", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return FolderFiles(tmp_path / "files") if request.param == "folder" else MemoryFiles(random.Random(1))


def test_files_grow_and_go(files: Files) -> None:
    assert files.list() == []
    files.append("b", b"one ")
    files.append("a", b"")
    files.append("b", b"two")
    files.sync("b")
    assert files.list() == ["a", "b"]
    assert (files.read("a"), files.read("b")) == (b"", b"one two")
    files.delete("b")
    files.delete("b")
    assert files.list() == ["a"]
    for ask in (files.read, files.sync):
        with pytest.raises(FileNotFoundError):
            ask("b")
    files.append("b", b"new")
    assert files.read("b") == b"new"


def crashed(seed: int) -> MemoryFiles:
    files = MemoryFiles(random.Random(seed))
    files.append("kept", b"synced")
    files.append("gone", b"synced")
    files.sync("gone")
    files.sync("kept")
    files.append("kept", b", then not")
    files.append("new", b"never synced")
    files.delete("gone")
    files.crash()
    return files


def test_a_crash_leaves_what_was_synced_and_any_beginning_of_the_rest() -> None:
    """Would catch a journal that is only ever tried with whole records, or with none."""
    left = [crashed(seed) for seed in range(200)]
    kept = {files.read("kept") for files in left}
    assert all((b"synced, then not").startswith(each) and each.startswith(b"synced") for each in kept)
    assert {b"synced", b"synced, then not"} < kept
    assert {"new" in files.list() for files in left} == {True, False}
    assert {"gone" in files.list() for files in left} == {True, False}
    assert all(files.read("gone") == b"synced" for files in left if "gone" in files.list())


def test_a_crash_is_the_same_from_the_same_seed_and_over_when_it_is_over() -> None:
    first, second = crashed(3), crashed(3)
    assert [(name, first.read(name)) for name in first.list()] == [(name, second.read(name)) for name in second.list()]
    before = {name: first.read(name) for name in first.list()}
    first.crash()
    assert {name: first.read(name) for name in first.list()} == before


def test_what_is_deleted_before_a_sync_stays_deleted() -> None:
    for seed in range(50):
        files = MemoryFiles(random.Random(seed))
        for name in ("a", "b"):
            files.append(name, b"x")
            files.sync(name)
        files.delete("a")
        files.sync("b")
        files.crash()
        assert files.list() == ["b"]
