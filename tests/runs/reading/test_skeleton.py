"""A line of JSON read by range: what is long stays in the file, and is there when it is asked for."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE_SECONDS

from cookhouse.errors import InputError
from cookhouse.runs.reading import skeleton
from cookhouse.runs.reading.skeleton import FarNumbers, FarText, read_numbers, read_skeleton, read_text

ESCAPED = 'quote " backslash \\ line \n Chinese 猫 emoji 😀 ]}[{,'


def written(tmp_path: Path, value: Any, **options: Any) -> tuple[Path, int, int]:
    """A file with the value behind other bytes."""
    text = json.dumps(value, **options).encode()
    path = tmp_path / "line.jsonl"
    path.write_bytes(b"before\n" + text + b"\nbehind")
    return path, 7, 7 + len(text)


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_what_is_read_is_what_was_written(tmp_path: Path, ascii_only: bool, separators: tuple[str, str]) -> None:
    # Catches a quote, a bracket or a comma within a text that is taken for the end of something.
    numbers = [1.5, -2, math.inf, 3e-300, *range(500)]
    value = {"numbers": numbers, "short": [1, 2], "text": ESCAPED * 40, "few": ESCAPED, "nested": [[[numbers]], {}]}
    read = read_skeleton(*written(tmp_path, value, ensure_ascii=ascii_only, separators=separators))
    assert isinstance(read["numbers"], FarNumbers)
    assert isinstance(read["text"], FarText)
    assert (read["short"], read["few"]) == ([1, 2], ESCAPED)
    assert read_numbers(read["numbers"]) == numbers
    assert read_numbers(read["nested"][0][0][0], 498) == numbers[498:]
    assert read_text(read["text"], 10**6) == (ESCAPED * 40, 0)


def test_any_range_of_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a number that a block cuts in two, and a range one off.
    monkeypatch.setattr(skeleton, "_BLOCK_BYTES", 7)
    numbers = [*range(-300, 300)]
    [far] = read_skeleton(*written(tmp_path, [numbers]))
    assert far.count == 600
    for first, count in ((0, 3), (1, 1), (299, 2), (597, 3), (597, 9), (600, 5), (7, 0), (0, None), (599, None)):
        assert read_numbers(far, first, count) == numbers[first:][: 10**6 if count is None else count]


@pytest.mark.parametrize("text", ["😀" * 500, "\\" * 999, '\\"' * 500, "猫a" * 400, "é\n" * 700])
def test_a_text_is_cut_between_characters(tmp_path: Path, text: str) -> None:
    # Catches half an escape, which is no JSON.
    for ascii_only in (True, False):
        [far] = read_skeleton(*written(tmp_path, [text], ensure_ascii=ascii_only))
        for length in (0, 1, 2, 3, 40, 41, 42, 43):
            shown, left_out = read_text(far, length)
            assert shown == text[:length]
            assert left_out > 0


def test_a_short_text_says_what_it_lost() -> None:
    assert read_text("猫abc", 1) == ("猫", 3)
    assert read_text("abc", 3) == ("abc", 0)


def test_nobody_can_forge_what_stays_in_the_file(tmp_path: Path) -> None:
    # Catches a log that makes a page read any part of any file.
    forged = {"__far__": [0, 10, 1], "path": "/etc/passwd", "text": "[" + "1," * 300 + "1]"}
    read = read_skeleton(*written(tmp_path, {"logs": {**forged, "a" * 500: "b"}}))
    assert read["logs"]["__far__"] == [0, 10, 1]
    assert read["logs"]["a" * 500] == "b"
    assert isinstance(read["logs"]["text"], FarText), "an array within a text is text"


@pytest.mark.parametrize("line", [b"{", b'{"a":[1,2}', b"\xff\xfe", b"[" * 100_000, b'"abc', b'{"a":' + b'"\\"' * 300])
def test_what_is_no_json_is_said(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "line.jsonl"
    path.write_bytes(line)
    with pytest.raises(InputError, match="not JSON"):
        read_skeleton(path, 0, len(line))


def test_an_array_that_is_none_is_said(tmp_path: Path) -> None:
    path = tmp_path / "line.jsonl"
    path.write_bytes(b"[" + b"1,,2," * 100 + b"3]")
    far = read_skeleton(path, 0, path.stat().st_size)
    with pytest.raises(InputError, match="cannot be read from byte"):
        read_numbers(far)


def test_limits_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a line of millions of small parts that fills the memory.
    place = written(tmp_path, [{"a": index} for index in range(1000)])
    monkeypatch.setattr(skeleton, "MAX_SKELETON_BYTES", 1000)
    with pytest.raises(InputError, match="besides its tokens and texts"):
        read_skeleton(*place)
    monkeypatch.setattr(skeleton, "MAX_LINE_BYTES", 1000)
    with pytest.raises(InputError, match="a line has"):
        read_skeleton(*place)


@pytest.mark.parametrize("end", [b"", b"\\"])
def test_a_text_without_an_end_holds_nobody_up(tmp_path: Path, end: bytes) -> None:
    # Catches a line that takes hours: a search anew at each of its quotes, in which no other thread of a server runs.
    path = tmp_path / "lines"
    path.write_bytes(b'{"number": 0, "group": "' + b'\\"' * 1_000_000 + end + b"\n")
    code = (
        "import sys; from pathlib import Path; from cookhouse.runs.reading.rollouts import index_rollouts\n"
        "print(index_rollouts(Path(sys.argv[1])).groups[0].problem)\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert "is not JSON" in done.stdout
