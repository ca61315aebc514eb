"""Rows of problems from the hub, over a fake of the library that reads it."""

import logging
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cookhouse.envs import HubSplit, read_problems
from cookhouse.errors import BadRowsError, InputError

SPLIT = HubSplit(name="someone/problems", split="train", configs=("easy", "hard"))


def parse(row: Mapping[str, Any]) -> str | None:
    return None if row["word"] == "-" else str(row["word"])


def install(monkeypatch: pytest.MonkeyPatch, rows: Mapping[str | None, list[Any]]) -> None:
    def load_dataset(name: str, config: str | None, *, split: str) -> list[Any]:
        assert (name, split) == ("someone/problems", "train")
        if config not in rows:
            raise FileNotFoundError("no such data set, or no network")
        return rows[config]

    library = types.ModuleType("datasets")
    library.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", library)


def test_configurations_are_read_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches a part of a data set that is skipped, and rows that are left out without a word."""
    install(monkeypatch, {"easy": [{"word": "a"}, {"word": "-"}], "hard": [{"word": "b"}]})
    with caplog.at_level(logging.WARNING):
        assert read_problems(SPLIT, parse) == ["a", "b"]
    assert "someone/problems: 1 of 3 rows cannot be graded and are left out" in caplog.text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "someone/problems cannot be loaded from the hub: no such data set, or no network; give the path"),
        ({"easy": [{"world": "a"}], "hard": []}, r"problems \(train\), row 0: the row has no 'word'; it has world"),
        ({"easy": [{"word": "-"}], "hard": []}, r"someone/problems holds no problems that can be graded \(1 rows\)"),
    ],
)
def test_what_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, rows: Mapping[str | None, list[Any]], message: str
) -> None:
    install(monkeypatch, rows)
    with pytest.raises(InputError, match=message):
        read_problems(SPLIT, parse)


def test_bad_rows_are_named_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, {"easy": [{"world": "a"}, {"word": "b"}, 3], "hard": []})
    with pytest.raises(BadRowsError) as caught:
        read_problems(SPLIT, parse)
    assert [reason.split(": ")[0] for reason in caught.value.reasons] == [
        "someone/problems (train), row 0",
        "someone/problems (train), row 2",
    ]
    (tmp_path / "rows.jsonl").write_text('{"word": "a"}\n{\n{"world": "a"}\n')
    with pytest.raises(BadRowsError) as caught:
        read_problems(tmp_path / "rows.jsonl", parse)
    assert [reason.split(": ")[0] for reason in caught.value.reasons] == [
        f"{tmp_path}/rows.jsonl:2",
        f"{tmp_path}/rows.jsonl:3",
    ]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"install cookhouse\[data\], or give the path of a JSON Lines file"):
        read_problems(SPLIT, parse)
