"""A worker's files on a node that sees none of the server's folders."""

from pathlib import Path

import pytest

from cookhouse.engine.transports.ray.worker_files import MAX_FILE_BYTES, MAX_PART_BYTES, WorkerFiles
from cookhouse.errors import InputError


def test_parts_come_in_any_order_and_are_read_back(tmp_path: Path) -> None:
    files = WorkerFiles(tmp_path / "files")
    files.write("ray-1/sub/a.bin", 4, b"5678")
    files.write("ray-1/sub/a.bin", 0, b"1234")
    assert files.read("ray-1/sub/a.bin", 2, 4) == b"3456"
    assert files.read("ray-1/sub/a.bin", 6, 100) == b"78"
    assert (tmp_path / "files" / "ray-1" / "sub" / "a.bin").read_bytes() == b"12345678"


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
