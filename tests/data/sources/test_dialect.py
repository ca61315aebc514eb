"""Delimiters and encodings of CSV files."""

import io
import shlex
import subprocess
from pathlib import Path

import pytest

from cookhouse.data import parse_delimiter
from cookhouse.data.sources.dialect import find_delimiter
from cookhouse.data.sources.files import file_rows
from cookhouse.data.sources.store import iter_blocks
from cookhouse.errors import InputError


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("a,b\n1,2\n", ","),
        ("Ticket ID;Agent reply\n1;Yes, of course, today\n2;No\n", ";"),
        ("id\ttext\n1\tone, two\n", "\t"),
        ("id|text\n1|one; two\n", "|"),
        ("prompt\nWhere, oh where?\n", ","),
        ('id;text\n1;"one\ntwo; three"\n', ";"),
        ('"a;b",c\n1,2\n', ","),
        ("id;text\n1;a;b\n", ";"),
        ("a,b\n1,2,3\n", ","),
        ('a,b\n1,"2\n', ","),
        ("", ","),
    ],
)
def test_the_delimiter_is_found(text: str, mark: str) -> None:
    """Catches the delimiter of a cell's text, and a file of one column that is cut at commas."""
    assert find_delimiter(io.BytesIO(text.encode()), ",") == mark


def test_a_sample_that_ends_within_quotes_tells_the_delimiter() -> None:
    """Catches a large file whose delimiter is lost at the end of what is looked at."""
    rows = "".join(f'{number};"{"long, text " * 3000}"\n' for number in range(20))
    assert find_delimiter(io.BytesIO(f"id;text\n{rows}".encode()), ",") == ";"


def test_a_delimiter_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a#b\n1#2\n")
    assert [row.value() for row in iter_blocks(file_rows(path, delimiter="#"))] == [{"a": "1", "b": "2"}]
    assert parse_delimiter("tab") == "\t"
    with pytest.raises(InputError, match="one character"):
        parse_delimiter(";;")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_the_command_of_another_encoding_works_when_it_is_pasted(tmp_path: Path, encoding: str) -> None:
    """Catches advice that a shell cuts at a space, or that writes something else."""
    path = tmp_path / "help desk.csv"
    path.write_bytes("question;answer\nCafé?;Ja – natürlich\n".encode(encoding))
    with pytest.raises(InputError, match="iconv") as refused:
        list(iter_blocks(file_rows(path)))
    command = str(refused.value)[str(refused.value).index("iconv") :]
    subprocess.run(command, shell=True, check=True, timeout=30)
    made = Path(shlex.split(command)[-1])
    assert [row.value() for row in iter_blocks(file_rows(made))] == [{"question": "Café?", "answer": "Ja – natürlich"}]
