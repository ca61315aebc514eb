"""A worker's files on a node that sees none of the server's folders."""

import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cookhouse.engine.transports.ray.worker_files import MAX_FILE_BYTES, WorkerFiles
from cookhouse.engine.worker.folders import MAX_PART_BYTES
from cookhouse.errors import InputError


def test_parts_come_in_any_order_and_are_read_back(tmp_path: Path) -> None:
    files = WorkerFiles(tmp_path / "files")
    files.write("ray-1/sub/a.bin", 4, b"5678")
    files.write("ray-1/sub/a.bin", 0, b"1234")
    assert files.read("ray-1/sub/a.bin", 2, 4) == b"3456"
    assert files.read("ray-1/sub/a.bin", 6, 100) == b"78"
    assert (tmp_path / "files" / "ray-1" / "sub" / "a.bin").read_bytes() == b"12345678"


def test_parts_of_a_new_file_that_come_together_are_both_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch the part that opens the file last truncating what the other has written: zeros among weights."""
    files = WorkerFiles(tmp_path)
    exists = Path.exists
    both_looked, is_first_written = threading.Barrier(2), threading.Event()

    def exists_for_both(path: Path) -> bool:
        """Whether there is a file, as both parts see it before either writes; the second then comes after the first."""
        found = exists(path)
        if path.name == "a.bin" and both_looked.wait(10):
            is_first_written.wait(10)
        return found

    def write(offset: int, part: bytes) -> None:
        files.write("ray-1/a.bin", offset, part)
        is_first_written.set()

    monkeypatch.setattr(Path, "exists", exists_for_both)
    with ThreadPoolExecutor(2) as threads:
        for written in [threads.submit(write, 0, b"1234"), threads.submit(write, 4, b"5678")]:
            written.result(30)
    assert (tmp_path / "ray-1" / "a.bin").read_bytes() == b"12345678"


def test_sums_are_of_each_part(tmp_path: Path) -> None:
    """Would catch a transfer that is taken for whole since its size is right."""
    files = WorkerFiles(tmp_path)
    files.write("ray-1/a.bin", 0, b"12345")
    files.write("ray-1/sub/b.bin", 0, b"")
    assert files.sums("ray-1", 4) == {
        "a.bin": [(4, zlib.crc32(b"1234")), (1, zlib.crc32(b"5"))],
        "sub/b.bin": [(0, 0)],
    }


@pytest.mark.parametrize("name", ["../a", "/etc/a", "a/../../b", "a//b", "", ".hidden", "a/.b", "a\0b", "a\n"])
def test_names_of_other_places_are_refused(name: str, tmp_path: Path) -> None:
    """Would catch a file that is written wherever a name points."""
    files = WorkerFiles(tmp_path / "files")
    with pytest.raises(InputError, match="no name of a file here"):
        files.write(name, 0, b"x")
    with pytest.raises(InputError, match="no name of a file here"):
        files.read(name, 0, 1)
    assert list(tmp_path.iterdir()) == []


def test_sizes_are_bounded(tmp_path: Path) -> None:
    files = WorkerFiles(tmp_path)
    for offset in (-1, MAX_FILE_BYTES):
        with pytest.raises(InputError, match="more than a file"):
            files.write("a", offset, b"x")
    for offset, num_bytes in ((-1, 1), (0, -1), (0, MAX_PART_BYTES + 1)):
        with pytest.raises(InputError, match="cannot be read"):
            files.read("a", offset, num_bytes)
