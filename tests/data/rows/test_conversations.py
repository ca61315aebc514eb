"""JSON Lines files of conversations, good and bad."""

import json
from pathlib import Path

import pytest

from cookhouse.data import data_source, read_conversations
from cookhouse.data.sources import store
from cookhouse.errors import BadRowsError, InputError

GOOD = b'{"input": "q", "output": "a"}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_blank_lines_a_byte_order_mark_and_windows_endings_are_no_rows(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n\r\n  \n" + GOOD)
    assert [c.source for c in read_conversations(path)] == [f"{path}:1", f"{path}:4"]


def test_a_line_separator_within_text_does_not_break_the_row(path: Path) -> None:
    # U+2028 may stand in JSON text; str.splitlines would cut the row there.
    path.write_text(json.dumps({"input": "one\u2028two\x85", "output": "a"}, ensure_ascii=False), encoding="utf-8")
    assert read_conversations(path)[0].messages[0]["content"] == "one\u2028two\x85"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"input": "q", ', "rows.jsonl:3: not JSON: "),
        (b"[1, 2", "rows.jsonl:3: not JSON: "),
        (b'[{"input": "q", "output": "a"}]', "rows.jsonl:3: a row must be an object, not list"),
        (b'{"words": "x"}', "rows.jsonl:3: no messages: a row needs"),
        (b'{"messages": [{"role": "usr", "content": "x"}]}', "rows.jsonl:3: message 1: unknown role 'usr'"),
        (b'{"messages": []}', "rows.jsonl:3: the conversation is empty"),
        (b'{"input": "caf\xe9", "output": "a"}', "rows.jsonl:3: not UTF-8 at byte 14; save the file as UTF-8"),
        (b'{"input": "\\ud800", "output": "a"}', "rows.jsonl:3: message 1: text holds half a surrogate pair"),
        (b"[" * 100_000, "rows.jsonl:3: not JSON that can be read"),
        (b'{"input": ' + b"9" * 5000 + b"}", "rows.jsonl:3: not JSON that can be read"),
    ],
)
def test_a_bad_line_is_named_by_file_line_and_reason(path: Path, line: bytes, reason: str) -> None:
    path.write_bytes(GOOD + b"\n\n" + line + b"\n" + GOOD)
    with pytest.raises(InputError) as caught:
        read_conversations(path)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 500


def test_an_oversized_line_is_refused_before_it_is_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_LINE_BYTES", 100)
    path.write_bytes(GOOD + b"\n" + b"x" * 101)
    with pytest.raises(InputError, match=r"rows\.jsonl:2: the line is longer than 100 bytes"):
        read_conversations(path)


def test_a_file_that_cannot_be_read_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"rows\.jsonl does not exist"):
        read_conversations(path)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_conversations(tmp_path)
    path.write_bytes(b"\n\n")
    with pytest.raises(InputError, match="holds no conversations"):
        read_conversations(path)


def test_a_limit_reads_no_further(path: Path) -> None:
    path.write_bytes(GOOD + b"\n" + GOOD + b"\nbroken")
    assert len(read_conversations(data_source(path, limit=2))) == 2


def test_the_first_twenty_bad_rows_are_named_at_once_with_the_count_of_the_rest(path: Path) -> None:
    # Catches a file that has to be mended one row and one attempt at a time.
    path.write_bytes(b"\n".join([GOOD, b"{", *([b'{"words": "x"}', GOOD] * 23)]))
    with pytest.raises(BadRowsError) as caught:
        read_conversations(path)
    title, *lines, rest, way_out = str(caught.value).split("\n")
    assert "columns=prompt:COLUMN,completion:COLUMN" in way_out
    assert title == "24 rows cannot be used"
    odd = ", ".join(map(str, range(3, 40, 2)))
    assert [line.split(": ")[0].strip() for line in lines] == [f"{path}:2", f"{path}:{odd}"]
    assert ": not JSON" in lines[0]
    assert ": no messages" in lines[1]
    assert rest == "  and 4 more"


def test_a_reason_keeps_to_its_line(path: Path) -> None:
    path.write_bytes(b'{"messages": [{"role": "a\\nb", "content": ""}]}\n{')
    with pytest.raises(BadRowsError) as caught:
        read_conversations(path)
    assert len(str(caught.value).splitlines()) == 3
