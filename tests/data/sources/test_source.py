"""Data sets by name: read and checked as JSON Lines files are."""

import gc
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType

import pytest

from cookhouse import naming
from cookhouse.data import (
    FileSource,
    NamedSource,
    data_source,
    data_sources,
    fingerprint_of,
    held_out_source,
    read_conversations,
)
from cookhouse.data.config import ConversationsConfig
from cookhouse.data.sources import source
from cookhouse.data.sources.registry import DATASETS
from cookhouse.errors import BadRowsError, InputError

GOOD = {"input": "q", "output": "a"}

Named = Callable[[object], str]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Named:
    """A registered name for a function that returns the rows given, or for the function given."""

    def name(rows: object) -> str:
        monkeypatch.setitem(DATASETS._registered, "mine", rows if callable(rows) else lambda: rows)
        return "mine"

    return name


def refused(name: str) -> str:
    with pytest.raises(InputError) as caught:
        read_conversations(name)
    return str(caught.value)


def installed() -> list[dict[str, str]]:
    return [GOOD]


def test_a_name_is_registered_installed_or_a_place(
    named: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.py"
    file.write_text("def rows():\n    yield {'prompt': 'q', 'completion': 'a'}\n")
    point = EntryPoint(name="theirs", value=f"{__name__}:installed", group="cookhouse.datasets")
    monkeypatch.setattr(naming, "entry_points", lambda group: [point] if group == point.group else [])
    for name in (named([GOOD]), "theirs", f"{file}:rows", f"{__name__}:installed"):
        (only,) = read_conversations(name)
        assert only.source == f"{name} row 1"
        assert [message["content"] for message in only.messages] == ["q", "a"]
    assert ConversationsConfig(dataset_path="theirs").build().statistics.num_examples == 1


def test_a_file_that_exists_is_no_name(named: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches a run that trains on something else once a package is installed whose name a file has.
    monkeypatch.chdir(tmp_path)
    assert data_source(named([GOOD])) == NamedSource(name="mine")
    for name in ("mine", "a:b"):
        (tmp_path / name).write_text('{"input": "q", "output": "of the file"}')
        assert read_conversations(name)[0].source == f"{name}:1"
    assert isinstance(data_source(Path("not/there:rows")), FileSource)


@pytest.mark.parametrize("name", ["missing.jsonl", "run:3/rows.jsonl", "missing"])
def test_a_path_to_nothing_tells_of_names(name: str) -> None:
    assert refused(name) == (
        f"{name} does not exist; give the path of a JSON Lines, JSON, CSV or Parquet file, a folder or hub id such as "
        "HuggingFaceH4/no_robots, or a data set by name, module:NAME or file.py:NAME"
    )


def test_rows_are_checked_as_lines_are(named: Named) -> None:
    # Catches a second, laxer way in.
    rows = [GOOD, [GOOD], {"words": "x"}, None, "", {"input": "\ud800", "output": "a"}, *([{}] * 20)]
    title, *lines, rest, way_out = refused(named(rows)).split("\n")
    assert title == "25 rows cannot be used"
    assert "columns=prompt:COLUMN,completion:COLUMN" in way_out
    assert lines[0] == "  mine row 2: a row must be an object, not list"
    assert lines[1].startswith("  mine row 3: no messages: a row needs")
    assert lines[2] == "  mine row 4: a row must be an object, not NoneType"
    assert lines[4].startswith("  mine row 6: message 1: text holds half a surrogate pair")
    assert lines[5].startswith("  mine row 7-21: no messages: a row needs")
    assert (len(lines), rest) == (6, "  and 5 more")


def test_rows_that_are_no_json_are_named_together(named: Named) -> None:
    circle: dict[str, object] = dict(GOOD)
    circle["self"] = circle
    name = named([GOOD, {**GOOD, "when": object()}, circle, {**GOOD, "of": {("a", "b"): 1}}])
    with pytest.raises(BadRowsError) as caught:
        read_conversations(name)
    assert [reason.split(": ")[0] for reason in caught.value.reasons] == [f"mine row {number}" for number in (2, 3, 4)]
    assert "not to be written as JSON: object is no JSON; give mappings of text" in caught.value.reasons[0]


def test_mappings_and_tuples_are_objects_and_lists(named: Named) -> None:
    turns: tuple[Mapping[str, str], ...] = (
        MappingProxyType({"role": "user", "content": "q"}),
        {"role": "assistant", "content": "a"},
    )
    (only,) = read_conversations(named([MappingProxyType({"messages": turns})]))
    assert [message["content"] for message in only.messages] == ["q", "a"]


def broken() -> Iterator[object]:
    yield GOOD
    raise KeyError("column")


def needy(path: str) -> list[str]:
    return [path]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (broken, "KeyError: 'column'"),
        (needy, "TypeError: needy() missing 1 required positional argument: 'path'"),
        (7, "TypeError: it returned int in place of rows"),
        ({"train": [GOOD]}, "TypeError: it returned dict in place of rows"),
        ("rows.jsonl", "TypeError: it returned str in place of rows"),
        (None, "TypeError: it returned NoneType in place of rows"),
    ],
)
def test_a_function_that_gives_no_rows_is_named(named: Named, rows: object, reason: str) -> None:
    assert refused(named(rows)).startswith(f"data set mine gives no rows: {reason}")


def test_no_rows_are_refused(named: Named) -> None:
    assert refused(named([])) == "mine holds no conversations; it needs at least one row"


def test_a_source_calls_its_function_once(named: Named) -> None:
    # Catches rows that are drawn by chance and trained on under the fingerprint of others.
    calls = []

    def rows() -> list[dict[str, str]]:
        calls.append(1)
        return [{**GOOD, "input": f"call {len(calls)}"}]

    source = data_source(named(rows))
    first = fingerprint_of(source)
    assert read_conversations(source)[0].messages[0]["content"] == "call 1"
    assert fingerprint_of(source) == first
    told = first.changes_to(fingerprint_of(data_source("mine")))
    assert told == "it has 1 lines as before; the first that is different is line 1"


ROWS = [GOOD, {"input": "q2", "output": "a2"}]


def test_a_list_is_a_data_set() -> None:
    assert len(read_conversations(f"{__name__}:ROWS")) == 2


def test_rows_that_take_much_wait_in_a_file_that_goes_with_their_source(
    named: Named, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Catches a function whose rows fill the memory, and files that nobody removes.
    monkeypatch.setattr(source, "_MAX_MEMORY_BYTES", 100)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    given: NamedSource | None = NamedSource(name=named([{**GOOD, "id": n} for n in range(50)]))
    assert given is not None
    assert [c.extra.get("id") for c in read_conversations(given)] == list(range(50))
    assert len([*tmp_path.iterdir()]) == 1
    given = None
    gc.collect()
    assert [*tmp_path.iterdir()] == []


def test_several_names_are_several_sources_unless_a_file_has_that_name(tmp_path: Path) -> None:
    assert [str(each) for each in data_sources("a.jsonl, owner/name#test ,gsm8k")] == [
        "a.jsonl",
        "owner/name (test)",
        "gsm8k",
    ]
    path = tmp_path / "a,b.jsonl"
    path.write_text("")
    assert data_sources(str(path)) == [data_source(str(path))]


def test_a_limit_reads_the_first_rows_of_any_source(tmp_path: Path, named: Named) -> None:
    """Catches a function that is exhausted for its first rows: this one has no end."""
    asked: list[int] = []

    def endless() -> Iterator[dict[str, str]]:
        for number in itertools.count():
            asked.append(number)
            yield {"input": "q", "output": str(number)}

    file = tmp_path / "rows.csv"
    file.write_text("input,output\nq,0\nq,1\nq,2\nq,3\n")
    array = tmp_path / "rows.json"
    array.write_text('[{"input": "q", "output": "0"}, {"input": "q", "output": "1"}, {"input": "q", "output": "2"}]')
    for given in (named(endless), str(file), str(array)):
        read = read_conversations(data_source(given, limit=2))
        assert [conversation.messages[-1]["content"] for conversation in read] == ["0", "1"]
    assert asked == [0, 1]
    assert len(read_conversations(data_source(file, limit=9))) == 4


def test_what_lies_behind_a_limit_is_no_part_of_the_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    before = fingerprint_of(data_source(file, limit=2))
    file.write_text('{"a": 1}\n{"a": 2}\n{"a": 4}\n{"a": 5}\n')
    assert before.changes_to(fingerprint_of(data_source(file, limit=2), stride=before.stride)) is None
    file.write_text('{"a": 1}\n{"a": 9}\n{"a": 3}\n')
    now = fingerprint_of(data_source(file, limit=2), stride=before.stride)
    assert before.changes_to(now) == "it has 2 lines as before; the first that is different is line 2"


def test_what_is_held_out_of_a_known_set_is_not_limited_with_it() -> None:
    held_out = held_out_source(data_source("hh", limit=3))
    assert held_out is not None
    assert held_out.limit is None
