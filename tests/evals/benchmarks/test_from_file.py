"""Benchmarks of files, without any Python."""

import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import BadRowsError, InputError, UnknownNameError
from cookhouse.evals import BENCHMARKS, EVALUATORS, BenchmarkItem, load_benchmark, sources_of_benchmarks
from cookhouse.evals.benchmarks import from_file
from cookhouse.evals.benchmarks.from_file import FileBenchmark

pytestmark = pytest.mark.anyio


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def benchmark(name: str) -> FileBenchmark:
    found = BENCHMARKS.find(name)
    assert isinstance(found, FileBenchmark)
    return found


def items(tmp_path: Path, *rows: object) -> list[BenchmarkItem]:
    found = benchmark(write(tmp_path / "mine.jsonl", *rows))
    [source] = sources_of_benchmarks([found], None).values()
    return [*load_benchmark(found, source, None).items.values()]


async def scores(item: BenchmarkItem, *answers: str) -> list[tuple[float, bool]]:
    grades = [await item.grade(answer) for answer in answers]
    return [(grade.correct, grade.is_well_formed) for grade in grades]


RIGHT, WRONG, MALFORMED = (1.0, True), (0.0, True), (0.0, False)


async def test_each_row_says_how_it_is_graded(tmp_path: Path) -> None:
    exact, contains, number, regex = items(
        tmp_path,
        {"question": "Capital of France?", "answer": "Paris"},
        {"question": "Capital of France?", "answer": ["Paris", "paree"], "match": "contains", "ignore_case": True},
        {"question": "Legs of two dogs?", "answer": 8, "match": "number", "tolerance": 0.5},
        {"question": "Say hello.", "pattern": "^(hi|hello)\\b"},
    )
    assert await scores(exact, " Paris\n", "Paris.") == [RIGHT, WRONG]
    assert await scores(contains, "It is PAREE", "Rome") == [RIGHT, WRONG]
    assert await scores(number, "It is 8.4", "9", "eight") == [RIGHT, WRONG, MALFORMED]
    assert await scores(regex, "hello there", "well, hello") == [RIGHT, WRONG]
    assert (contains.expected, number.expected, regex.expected) == ("Paris or paree", "8", r"text with ^(hi|hello)\b")


async def test_a_choice_is_named_by_its_text_its_letter_or_its_place(tmp_path: Path) -> None:
    rows = [{"question": "Red?", "choices": ["yes", "no"], "answer": answer} for answer in ("no", "B", 1)]
    for item in items(tmp_path, *rows):
        assert (item.choices, item.expected) == (("yes", "no"), "no")
        assert await scores(item, "no", "yes") == [RIGHT, WRONG]


async def test_the_first_line_holds_for_those_that_follow(tmp_path: Path) -> None:
    header = {"match": "contains", "ignore_case": True, "max_tokens": 32, "system": "Be brief."}
    path = write(
        tmp_path / "my file.jsonl",
        header,
        {"Question": "q", "Answer": "A", "id": 7, "skill": "x"},
        {"prompt": [{"role": "user", "content": "q"}], "answer": "3", "match": "number", "name": "n", "group": "y"},
        {"question": "q", "choices": ["a", "b"], "answer": "a"},
    )
    found = benchmark(path)
    assert (found.name, found.max_tokens) == ("my_file", 32)
    first, second, third = found.read(sources_of_benchmarks([found], None)["my_file"])
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert (first.name, first.group, second.name, second.group, third.choices) == ("7", "x", "n", "y", ("a", "b"))
    assert await scores(first, "it is a") == [RIGHT]
    assert await scores(second, "4") == [WRONG]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answer": "a"}, "a prompt needs"),
        ({"question": "q"}, "answer must be text or a number"),
        ({"question": "q", "answer": True}, "answer must be text or a number"),
        ({"question": "q", "answer": " "}, "answer must say something"),
        ({"question": "q", "answer": "a" * 10_001}, "in at most 10,000 characters"),
        ({"question": "q" * 200_001, "answer": "a"}, "the question has more than 200,000 characters"),
        ({"question": "q", "answer": "a", "match": "fuzzy"}, "unknown match 'fuzzy'; allowed: choice, contains, exact"),
        ({"question": "q", "answer": "a", "match": "number"}, "answer is 'a', and match=number needs a number"),
        ({"question": "q", "answer": "1", "match": "number", "tolerance": -1}, "tolerance must be a number from 0 on"),
        ({"question": "q", "answer": "a", "tolerance": 1}, "tolerance is read by match=number, and this row has"),
        ({"question": "q", "answer": "a", "ignore_case": "yes"}, "ignore_case must be true or false"),
        ({"question": "q", "match": "regex"}, "match=regex needs a pattern"),
        ({"question": "q", "pattern": "("}, "which is no regular expression"),
        ({"question": "q", "choices": ["a", "b"], "answer": "c"}, "answer is 'c', which is none of the choices"),
        ({"question": "q", "choices": ["a", "b"], "answer": 2}, "it must be from 0 to 1"),
        ({"question": "q", "choices": ["a"], "answer": "a"}, "two or more different texts"),
        ({"question": "q", "choices": ["a"] * 101, "answer": "a"}, "a list of 2 to 100 texts"),
        ({"question": "q", "answer": ["a", "b"], "match": "judge"}, "match=judge compares with one answer"),
        ([1], "a row must be an object"),
    ],
)
def test_a_row_that_cannot_be_graded_is_named_by_file_and_line(tmp_path: Path, row: Any, reason: str) -> None:
    with pytest.raises(BadRowsError, match="mine") as caught:
        items(tmp_path, {"question": "q", "answer": "a"}, row)
    assert str(caught.value).startswith(f"{tmp_path / 'mine.jsonl'}:2: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"mach": "exact"}, "unknown setting of a benchmark's first line 'mach'; did you mean match"),
        ({"match": "exakt"}, "unknown match 'exakt'; did you mean exact"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be a whole number above 0"),
    ],
)
def test_a_first_line_that_cannot_hold_is_refused(tmp_path: Path, header: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        BENCHMARKS.find(write(tmp_path / "mine.jsonl", header))
    assert f"mine.jsonl:1: {reason}" in str(caught.value)


def test_files_without_rows_too_many_rows_and_no_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="asks nothing"):
        items(tmp_path, {"match": "exact"})
    with pytest.raises(InputError, match=r"nowhere\.jsonl does not exist"):
        BENCHMARKS.find("nowhere.jsonl")
    with pytest.raises(UnknownNameError):
        EVALUATORS.find("mine.toml")
    monkeypatch.setattr(from_file, "MAX_ROWS", 2)
    with pytest.raises(InputError, match="has more than 2 rows"):
        items(tmp_path, *({"question": str(n), "answer": "a"} for n in range(3)))


def test_other_forms_of_files_and_names_of_columns_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("Question,Answer,Match\n1 + 1,2,number\n")
    found = benchmark(str(path))
    [item] = found.read(sources_of_benchmarks([found], None)["table"])
    assert (item.expected, item.messages[-1]["content"]) == ("2", "1 + 1")
