"""Rows that have our fields by other names."""

import json
from pathlib import Path

import pytest

from cookhouse.data import data_source, data_sources, fingerprint_of, parse_columns, read_conversations
from cookhouse.data.sources.source import FileSource, HubSource, NamedSource
from cookhouse.errors import BadRowsError, InputError, UnknownNameError

COLUMNS = parse_columns("prompt:question, Completion:ANSWER")


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def said(path: Path, columns: str) -> list[str]:
    [conversation, *_] = read_conversations(data_source(path, columns=parse_columns(columns)))
    return [str(message["content"]) for message in conversation.messages]


def test_columns_are_read_in_any_case_from_lines_and_tables(tmp_path: Path) -> None:
    lines = write(tmp_path / "rows.jsonl", {"Question": "q", "Answer": "a", "topic": "x"})
    table = tmp_path / "rows.csv"
    table.write_text("Question,Answer,topic\nq,a,x\n")
    for path in (lines, table):
        [conversation] = read_conversations(data_source(path, columns=COLUMNS))
        assert [message["content"] for message in conversation.messages] == ["q", "a"]
        assert conversation.extra == {"topic": "x"}


def test_columns_may_change_places_and_a_row_may_have_our_name(tmp_path: Path) -> None:
    # Catches a column that takes the place of another before that is read.
    path = write(tmp_path / "rows.jsonl", {"prompt": "b", "completion": "a"})
    assert said(path, "prompt:completion,completion:prompt") == ["a", "b"]
    assert said(path, "prompt:Question,completion:Answer") == ["b", "a"]
    assert said(write(path, {"A": "q", "a": "x"}), "prompt:A,completion:a") == ["q", "x"]


def test_a_missing_column_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("Question,Answer\nq,a\nq,a\n")
    with pytest.raises(InputError, match=r"rows\.csv: there is no column 'Questoin' .* there are Question, Answer"):
        data_source(table, columns=parse_columns("prompt:Questoin")).rows  # noqa: B018 - it is read
    # A field that a shape could do without, too: it was meant to be read.
    lines = write(tmp_path / "rows.jsonl", {"Q": "q", "A": "a", "S": "s"}, {"Q": "q", "A": "a"})
    with pytest.raises(BadRowsError, match=r"rows\.jsonl:2: there is no column 'S' to be read as system; there are Q"):
        read_conversations(data_source(lines, columns=parse_columns("prompt:Q,completion:A,system:S")))


def test_a_row_that_is_none_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"Question": "q", "Answer": "a"}\n\n[1]\n{"Question"\n')
    with pytest.raises(BadRowsError, match=r"rows\.jsonl:3: a row must be an object(.|\n)*rows\.jsonl:4: not JSON"):
        read_conversations(data_source(path, columns=COLUMNS))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Question", "write a field of ours and your column of each, as in columns=prompt:Question"),
        ("prompt:", "write a field of ours"),
        ("prompt:a,prompt:b", "names prompt twice"),
    ],
)
def test_what_is_no_list_of_columns_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_columns(text)


def test_a_field_that_there_is_not_is_told_with_near_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean prompt"):
        parse_columns("promt:Question")
    assert parse_columns("") == ()


def test_columns_are_those_of_the_users_own_rows() -> None:
    """Would catch bundled rows that lack the columns, which may be trained on beside the user's."""
    bundled = FileSource(path=Path("bundled.jsonl"))
    sources = data_sources("bundled,mine.jsonl,owner/name,m:f", columns=COLUMNS, also={"bundled": bundled})
    assert [source.columns for source in sources] == [(), COLUMNS, COLUMNS, COLUMNS]
    assert [type(source) for source in sources] == [FileSource, FileSource, HubSource, NamedSource]
    assert NamedSource(name="no_robots", columns=COLUMNS).known is not None


def test_the_fingerprint_of_a_file_is_of_what_it_holds(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", {"Question": "q", "Answer": "a"})
    assert fingerprint_of(data_source(path, columns=COLUMNS)) == fingerprint_of(path)
