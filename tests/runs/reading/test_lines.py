"""The lines of a file that grows, is cut, or is replaced while it is read."""

from pathlib import Path

import pytest

from cookhouse.runs.reading import lines
from cookhouse.runs.reading.lines import Lines, find_lines, read_bytes


def texts(path: Path, found: Lines) -> list[bytes]:
    return [read_bytes(path, *found.span(index)) for index in range(len(found))]


def test_a_file_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a torn last line taken for a whole one, and what is read twice.
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 5)
    path = tmp_path / "rows.jsonl"
    assert len(find_lines(path)) == 0
    path.write_bytes(b"one\ntwo, longer\nthr")
    first = find_lines(path)
    assert texts(path, first) == [b"one", b"two, longer"]
    assert find_lines(path, first) is first
    with path.open("ab") as file:
        file.write(b"ee\n\nfive\n")
    second = find_lines(path, first)
    assert texts(path, second) == [b"one", b"two, longer", b"three", b"", b"five"]
    assert second == find_lines(path)


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    # Catches offsets of a file that a resumed run has cut.
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"one\ntwo\nthree\n")
    known = find_lines(path)
    path.write_bytes(b"one\n")
    assert texts(path, find_lines(path, known)) == [b"one"]
    path.write_bytes(b"1\n2\n" + b"a longer one\n")
    assert texts(path, find_lines(path, known)) == [b"1", b"2", b"a longer one"]
    path.unlink()
    assert len(find_lines(path, known)) == 0
