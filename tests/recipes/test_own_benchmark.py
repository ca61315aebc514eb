"""A file of questions as a benchmark: alone, while a model is trained, and with a judge."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.chat import Message, text_of
from cookhouse.errors import InputError
from cookhouse.recipes import dry_run
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService

ROWS = [
    {"match": "contains", "ignore_case": True},
    {"question": "a?", "answer": "A"},
    {"question": "b?", "answer": "C"},
]
JUDGED = [{"match": "judge"}, {"question": "a?", "answer": "x"}, {"question": "b?", "answer": "y"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, rows in (("mine", ROWS), ("judged", JUDGED)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def opened(name: str) -> Any:
    """Says what it is asked; a judge prefers the answer to a?, and the reference for b?."""

    async def complete(messages: Sequence[Message]) -> Message:
        asked = text_of(messages[-1])
        if name != "critic":
            return {"role": "assistant", "content": asked}
        first, second = (asked.partition(f"==== Completion {each} ====\n")[2][:2] for each in "AB")
        best = "a?" if "user: a?" in asked else "y\n"
        return {"role": "assistant", "content": "A" if first == best else "B" if second == best else "Who knows?"}

    return complete


def evaluate(**settings: Any) -> Any:
    values = {"log_path": "run", **settings}
    return cookhouse.run("eval", values, adapters=Adapters(completer=opened, sinks=[]))


def test_a_file_is_evaluated_scored_and_shown(folder: Path) -> None:
    metrics = evaluate(benchmark="mine.jsonl").metrics
    figures = [metrics[f"test/mine/correct{suffix}"] for suffix in ("", "_stderr", "_n")]
    assert figures == pytest.approx([0.5, 0.5, 2])
    assert "b?" in (folder / "run/evaluations/mine.html").read_text()
    assert list(json.loads((folder / "run/data.json").read_text())) == ["mine"]
    write = folder / "mine.jsonl"
    write.write_text(write.read_text() + json.dumps(ROWS[1]) + "\n")
    with pytest.raises(InputError, match="has changed since the run"):
        evaluate(benchmark="mine.jsonl", behavior_if_log_dir_exists="resume")


def test_a_judge_says_whether_an_answer_is_as_good_as_the_expected_one(folder: Path) -> None:
    """Would catch a judge that is asked about the question alone, and a draw or a win that counts as a loss."""
    with pytest.raises(InputError, match=r"judged\.jsonl has rows with match=judge, and nobody is named who judges"):
        dry_run("eval", {"benchmark": "judged.jsonl"})
    metrics = evaluate(benchmark="judged.jsonl", judge="critic").metrics
    assert metrics["test/judged/correct"] == 0.5
    assert [row["values"][0]["correct"] for row in _rows(folder / "run/grades.jsonl")] == [1.0, 0.0]
    with pytest.raises(InputError, match="judge=critic would change nothing: it is read with a file among the bench"):
        dry_run("eval", {"benchmark": "arithmetic", "judge": "critic"})


def test_what_a_judge_does_not_judge_is_malformed_and_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "judged.jsonl").write_text('{"question": "c?", "answer": "z", "match": "judge"}\n')
    metrics = evaluate(benchmark="judged.jsonl", judge="critic").metrics
    assert (metrics["test/judged/correct"], metrics["test/judged/malformed"]) == (0.0, 1.0)
    assert "the judge did not judge an answer, which counts as malformed" in caplog.text


def _rows(path: Path) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda row: row["item"])


@pytest.mark.usefixtures("folder")
def test_a_model_of_the_service_judges() -> None:
    service = FakeService()
    values = {"benchmark": "judged.jsonl", "judge": "cookhouse/tiny", "log_path": "run", "renderer_name": "human_ai"}
    metrics = cookhouse.run("eval", values, adapters=Adapters(service=service.connect, sinks=[])).metrics
    assert metrics["test/judged/correct_n"] == 2
    assert 0.0 <= metrics["test/judged/correct"] <= 1.0


@pytest.mark.parametrize("recipe", ["supervised", "rl"])
def test_a_file_is_an_evaluator_of_a_run_and_a_part_of_its_data(recipe: str, folder: Path) -> None:
    values: dict[str, Any] = {
        "evaluators": "mine.jsonl",
        "infrequent_evaluators": "judged.jsonl",
        "judge": "cookhouse/tiny",
        "max_steps": 2,
        "batch_size": 2,
        "num_eval": 2,
        "renderer_name": "human_ai",
        "log_path": "run",
        **({"group_size": 2} if recipe == "rl" else {}),
    }
    adapters = Adapters(service=FakeService().connect, sinks=[])
    cookhouse.run(recipe, values, adapters=adapters)
    rows = read_metrics(folder / "run/metrics.jsonl")
    assert [row["step"] for row in rows if "test/mine/correct" in row] == [0, 2]
    assert [row["test/judged/correct_n"] for row in rows if "test/judged/correct" in row] == [2]
    assert {"evaluator mine.jsonl", "evaluator judged.jsonl"} <= set(json.loads((folder / "run/data.json").read_text()))
    (folder / "mine.jsonl").write_text(json.dumps(ROWS[1]) + "\n")
    with pytest.raises(InputError, match="has changed since the run"):
        cookhouse.run(recipe, {**values, "behavior_if_log_dir_exists": "resume"}, adapters=adapters)
    missing = {name: value for name, value in values.items() if name != "judge"}
    with pytest.raises(InputError, match="nobody is named who judges"):
        dry_run(recipe, {**missing, "log_path": "other"})
