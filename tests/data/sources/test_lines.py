"""Rows of text files read block by block: the same rows as read at once, wherever blocks end."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cookhouse.data import FileSource, read_conversations, read_questions
from cookhouse.data.sources import lines
from cookhouse.data.sources.lines import CsvRows, LineRows, PromptLines
from cookhouse.data.sources.store import Rows, num_rows
from cookhouse.errors import InputError


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> object:
    """Blocks of a few bytes, so that lines begin and end everywhere in them."""
    before, lines._BLOCK_BYTES = lines._BLOCK_BYTES, 7
    yield
    lines._BLOCK_BYTES = before


def opener(content: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(content)


def contents(rows: Rows) -> list[object]:
    """Of all rows, the last block first: none hangs on those before it."""
    read = [[row.content for row in rows.read(block)] for block in reversed(range(len(rows.block_rows)))]
    assert [len(block) for block in reversed(read)] == rows.block_rows.tolist()
    return [content for block in reversed(read) for content in block]


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=12), st.booleans())
def test_blocks_hold_every_line_once(written: list[bytes], ends: bool) -> None:
    # Catches a line that is lost, torn or read twice where a block ends, and a blank one that counts as a row.
    content = b"\n".join(written) + (b"\n" if ends and written else b"")
    rows = LineRows(opener(content), lambda number: f"f:{number}")
    expected = [line.removesuffix(b"\n") for line in io.BytesIO(content)]
    if expected:
        expected[0] = expected[0].removeprefix(b"\xef\xbb\xbf")
    filled = [(f"f:{number}", line) for number, line in enumerate(expected, 1) if line.strip()]
    assert contents(rows) == [line for _, line in filled]
    places = [row.place for block in range(len(rows.block_rows)) for row in rows.read(block)]
    assert places == [place for place, _ in filled]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=12)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=8))
def test_csv_in_blocks_is_csv_as_a_whole(records: list[tuple[str, str]]) -> None:
    # Catches a record that is cut at a quoted line break.
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("prompt", "completion"), *records])
    rows = CsvRows(opener(text.getvalue().encode()), "f.csv", ",")
    assert contents(rows) == [{"prompt": first, "completion": second} for first, second in records]
    assert rows.columns == ["prompt", "completion"]


def test_csv_names_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    for content, reason in (
        ("", "f.csv is empty; its first line must name the fields"),
        ("a,a\n1,2\n", "f.csv has no header: its first line must name each field once, and it is 'a', 'a'"),
        ("a,\n1,2\n", "has no header: its first line must name each field once"),
        ('a,b\n1,"2\n', "a quote is opened and never closed"),
    ):
        path.write_text(content)
        with pytest.raises(InputError) as caught:
            contents(FileSource(path=path).rows)
        assert reason in str(caught.value)
    path.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(InputError, match="not UTF-8 at byte"):
        contents(FileSource(path=path).rows)


def test_a_record_with_other_cells_than_the_header_is_a_bad_row() -> None:
    rows = CsvRows(opener(b"a,b\n1,2\n3\n\n4,5\n"), "f.csv", ",")
    read = [row for block in range(len(rows.block_rows)) for row in rows.read(block)]
    assert [row.place for row in read] == ["f.csv row 1", "f.csv row 2", "f.csv row 3"]
    with pytest.raises(InputError, match=r"^f\.csv row 2: 1 cells, and the header names 2 fields"):
        read[1].value()


def test_a_file_that_changes_while_it_is_read_is_noticed() -> None:
    content = [b"one\ntwo\nthree\nfour\n"]
    rows = LineRows(lambda: io.BytesIO(content[0]), lambda number: f"f:{number}")
    content[0] = b"onetwothreefour\n"
    with pytest.raises(InputError, match="the file has changed while it was read"):
        contents(rows)


def test_a_large_file_has_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_MAX_BLOCKS", 4)
    content = b"".join(json.dumps({"n": n}).encode() + b"\n" for n in range(100))
    rows = LineRows(opener(content), str)
    assert len(rows.block_rows) <= 4
    assert num_rows(rows) == 100


LINES = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12)


@given(st.lists(LINES, max_size=12), st.booleans())
def test_lines_of_text_are_prompts(written: list[str], ends: bool) -> None:
    # Catches a blank line that becomes a prompt, and lines that are counted from where a block begins.
    rows = PromptLines(opener(("\n".join(written) + "\n" * ends).encode()), lambda number: f"f:{number}")
    kept = [row for block in range(len(rows.block_rows)) for row in rows.read(block) if not row.is_blank]
    bare = [line.removeprefix("\ufeff") if number == 0 else line for number, line in enumerate(written)]
    assert [(row.place, row.value()) for row in kept] == [
        (f"f:{number}", {"prompt": line.strip()}) for number, line in enumerate(bare, start=1) if line.strip()
    ]


def test_text_that_begins_with_a_brace_is_json_lines(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text('\n {"prompt": "one"}\n{"prompt": "two"}\n')
    assert [row.prompt[-1]["content"] for row in read_questions(tmp_path / "rows.txt")] == ["one", "two"]


def test_a_bad_line_of_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_bytes(b"a sentence\n\n\xff\xfe\n")
    with pytest.raises(InputError, match=r"rows\.txt:3: not UTF-8 at byte 0; save the file as UTF-8"):
        read_questions(tmp_path / "rows.txt")


def test_prompts_alone_are_no_conversations(tmp_path: Path) -> None:
    # Catches one error for each of a million lines.
    (tmp_path / "rows.txt").write_text("a sentence\nanother one\n")
    with pytest.raises(InputError, match="has the columns 'prompt', which make no conversation"):
        read_conversations(tmp_path / "rows.txt")
