"""JSON arrays, CSV and Parquet as data sets of conversations."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cookhouse.data import data_source, fingerprint_of, num_rows, read_conversations
from cookhouse.data.sources import tables
from cookhouse.errors import BadRowsError, InputError

ROWS = [{"prompt": f"q{n}", "completion": "a, b\nc"} for n in range(5)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    import csv

    import pyarrow
    import pyarrow.parquet

    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    elif path.suffix == ".json":
        path.write_text("\ufeff\n" + json.dumps(rows), encoding="utf-8")
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("suffix", [".json", ".csv", ".tsv", ".parquet"])
def test_every_form_gives_the_same_conversations(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"rows{suffix}", ROWS)
    found = read_conversations(str(path))
    assert [[message["content"] for message in c.messages] for c in found] == [[f"q{n}", "a, b\nc"] for n in range(5)]
    assert [c.source for c in found] == [f"{path} row {n}" for n in range(1, 6)]
    assert num_rows(data_source(str(path)).rows) == 5
    before = fingerprint_of(path)
    write(path, [*ROWS[:4], {**ROWS[4], "completion": "b"}])
    assert before.changes_to(fingerprint_of(path, stride=before.stride)) is not None


def test_a_json_file_may_be_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert len(read_conversations(path)) == 5


def test_conversations_in_cells_are_json(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    path = write(tmp_path / "rows.csv", [{"messages": json.dumps(messages), "skill": "s"}])
    (only,) = read_conversations(path)
    assert (only.messages, only.extra) == (messages, {"skill": "s"})


def test_columns_that_make_no_conversation_are_told_once(tmp_path: Path) -> None:
    # Catches the same reason for each of a million rows, and a CSV whose first row is taken for its header.
    for suffix in (".csv", ".parquet"):
        path = write(tmp_path / f"rows{suffix}", [{"What is 2?": "What is 3?", "2": "3"}] * 30)
        with pytest.raises(
            InputError, match=r"has the columns 'What is 2\?', '2', which make no conversation"
        ) as caught:
            read_conversations(path)
        assert not isinstance(caught.value, BadRowsError)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("rows.json", b"[{]", "rows.json: not JSON that can be read"),
        ("rows.json", b"[]", "rows.json holds no conversations; it needs at least one row"),
        ("rows.json", b"[3]", "rows.json row 1: a row must be an object, not int"),
        ("rows.json", b"[null]", "rows.json row 1: a row must be an object, not NoneType"),
        ("rows.csv", b"prompt,completion\n", "rows.csv holds no conversations"),
        ("rows.parquet", b"PAR1", "rows.parquet cannot be read as Parquet"),
        ("rows.jsonl", b"", "rows.jsonl holds no conversations"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_conversations(tmp_path / name)
    assert reason in str(caught.value)


def test_an_array_that_memory_should_not_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_ARRAY_BYTES", 10)
    path = write(tmp_path / "rows.json", ROWS)
    with pytest.raises(InputError, match="which must be read as a whole, and at most 10 are; save it as JSON Lines"):
        read_conversations(path)


def test_parquet_without_its_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "rows.parquet", ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"needs pyarrow: .* install .*\[data\].*; or save it as JSON Lines"):
        read_conversations(path)
