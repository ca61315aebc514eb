"""Which benchmarks are meant, and where their rows are."""

import json
from pathlib import Path

import pytest

from cookhouse.errors import BadRowsError, InputError, UnknownNameError
from cookhouse.evals import benchmarks_named, load_benchmark, sources_of_benchmarks

GOOD = {"question": "1 + 1?", "answer": "2 #### 2"}


def write(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def source_of(name: str, given: str | None) -> str:
    return str(sources_of_benchmarks(benchmarks_named(name), given)[name])


def test_an_unknown_benchmark_has_near_names() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown benchmark 'gsm8'; did you mean gsm8k"):
        benchmarks_named("gsm8")


@pytest.mark.parametrize(("text", "said"), [("", "no benchmark is named"), ("gsm8k,gsm8k", "gsm8k is named twice")])
def test_what_names_no_benchmarks_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        benchmarks_named(text)


@pytest.mark.parametrize(
    "file", ["gsm8k.jsonl", "GSM8K.jsonl", "deep/gsm8k.jsonl", "gsm8k/test.jsonl", "gsm8k/x.jsonl"]
)
def test_a_folder_has_a_file_of_a_benchmark(tmp_path: Path, file: str) -> None:
    write(tmp_path / file, GOOD)
    write(tmp_path / "other.jsonl", GOOD)
    if file == "gsm8k/test.jsonl":
        write(tmp_path / "gsm8k/train.jsonl", GOOD)
    assert source_of("gsm8k", str(tmp_path)) == str(tmp_path / file)


def test_a_folder_without_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no gsm8k.jsonl, nor a folder gsm8k of one file; .*gsm8k=FILE"):
        source_of("gsm8k", str(tmp_path))


def test_a_folder_with_two_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a/gsm8k.jsonl", GOOD)
    write(tmp_path / "b/gsm8k.jsonl", GOOD)
    with pytest.raises(InputError, match=r"has several files of gsm8k"):
        source_of("gsm8k", str(tmp_path))


def test_what_is_bundled_need_not_lie_in_the_folder(tmp_path: Path) -> None:
    assert source_of("arithmetic", str(tmp_path)).endswith("arithmetic/test.jsonl")


def test_files_by_name(tmp_path: Path) -> None:
    file = write(tmp_path / "some.jsonl", GOOD)
    sources = sources_of_benchmarks(benchmarks_named("gsm8k,arithmetic"), f"gsm8k={file}")
    assert str(sources["gsm8k"]) == str(file)
    with pytest.raises(InputError, match=r"names mbpp, which is not evaluated; the benchmarks are gsm8k"):
        sources_of_benchmarks(benchmarks_named("gsm8k"), f"mbpp={file}")
    with pytest.raises(InputError, match=r"there are 2 benchmarks; .*gsm8k="):
        sources_of_benchmarks(benchmarks_named("gsm8k,arithmetic"), str(file))


def test_without_data_it_is_the_published_set() -> None:
    assert source_of("gsm8k", None) == "openai/gsm8k (test)"


def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    file = write(tmp_path / "gsm8k.jsonl", GOOD, {"question": "?", "answer": "2"}, {"answer": "#### 3"})
    [benchmark] = benchmarks_named("gsm8k")
    with pytest.raises(BadRowsError) as refused:
        load_benchmark(benchmark, sources_of_benchmarks([benchmark], str(file))["gsm8k"], None)
    assert f"{file}:2: the answer has no ####" in str(refused.value)
    assert f"{file}:3: the row has no 'question'" in str(refused.value)


def test_limits_are_spaced_evenly(tmp_path: Path) -> None:
    file = write(tmp_path / "gsm8k.jsonl", *[GOOD] * 10)
    [benchmark] = benchmarks_named("gsm8k")
    loaded = load_benchmark(benchmark, sources_of_benchmarks([benchmark], str(file))["gsm8k"], 4)
    assert list(loaded.items) == [0, 2, 5, 7]
    assert loaded.num_all == 10
