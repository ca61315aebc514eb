"""Rows of problems, from files and from data sets in the hub's form."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.data.hub import write_set

from cookhouse.envs import HubSplit, read_problems
from cookhouse.errors import BadRowsError, InputError


def parse(row: Mapping[str, Any]) -> str | None:
    return None if row["word"] == "-" else str(row["word"])


def split(folder: Path, easy: list[Any], hard: list[Any]) -> HubSplit:
    """A set of two configurations, either of which may have no rows."""
    configs = {name: {"train": rows} for name, rows in (("easy", easy), ("hard", hard)) if rows}
    write_set(folder / "problems", configs, form="jsonl")
    return HubSplit(name=str(folder / "problems"), split="train", configs=[*configs])


def test_configurations_are_read_one_after_the_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Catches a part of a data set that is skipped, and rows that are left out without a word."""
    rows = split(tmp_path, [{"word": "a"}, {"word": "-"}], [{"word": "b"}])
    with caplog.at_level(logging.WARNING):
        assert read_problems(rows, parse) == ["a", "b"]
    assert "problems (train): 1 of 3 rows cannot be graded and are left out" in caplog.text


@pytest.mark.parametrize(
    ("easy", "message"),
    [
        ([{"world": "a"}], r"problems/easy/train.jsonl:1: the row has no 'word'; it has world"),
        ([{"word": "-"}], r"problems \(train\) holds no problems that can be graded \(1 rows\)"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, easy: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_problems(split(tmp_path, easy, []), parse)


def test_bad_rows_are_named_together(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"word": "a"}\n{\n{"world": "a"}\n3\n')
    with pytest.raises(BadRowsError) as caught:
        read_problems(tmp_path / "rows.jsonl", parse)
    assert [reason.split(": ")[0] for reason in caught.value.reasons] == [
        f"{tmp_path}/rows.jsonl:{number}" for number in (2, 3, 4)
    ]


def test_tables_are_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("word\na\n-\nb\n")
    assert read_problems(tmp_path / "rows.csv", parse) == ["a", "b"]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"install .*\[data\].*; or give the path of a file with the same fields"):
        read_problems(HubSplit(name="someone/problems"), parse)
