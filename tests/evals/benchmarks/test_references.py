"""The published reference answers score as right through an evaluation as a user runs it, and broken ones as wrong."""

import os
from pathlib import Path
from typing import Any

import pytest

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.envs import CodeGrading
from cookhouse.evals.benchmarks import built_in

from .references import FILES, RIGHT, WRONG, Reference

COUNTS = {"gsm8k": 1319, "math500": 500, "humaneval": 164, "mbpp": 974}


def evaluate(name: str, shared: Path, folder: Path, answers: Any, **settings: Any) -> Any:
    completer = Reference(name, shared / "data" / FILES[name], answers)
    return cookhouse.run(
        "eval",
        {"benchmark": name, "benchmark_data": str(shared / "data"), "log_path": str(folder), **settings},
        adapters=Adapters(completer=lambda _: completer, sinks=[]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_every_reference_answer_is_right(name: str, shared: Path, tmp_path: Path) -> None:
    """Catches a prompt, a reader or a grader that loses what was answered: each would lower every score."""
    result = evaluate(name, shared, tmp_path / "run", RIGHT)
    wrong = [a.place for a in result.state.log.attempts(name) if a.num_right == 0]
    assert wrong == []
    assert result.metrics[f"test/{name}/correct"] == 1.0
    assert result.metrics[f"test/{name}/correct_n"] == COUNTS[name]
    assert result.metrics[f"test/{name}/failed"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_every_broken_answer_is_wrong(name: str, shared: Path, tmp_path: Path) -> None:
    """Catches a grader that passes what it did not look at."""
    result = evaluate(name, shared, tmp_path / "run", WRONG)
    right = [a.place for a in result.state.log.attempts(name) if a.num_right]
    assert right == []
    assert result.metrics[f"test/{name}/correct"] == 0.0
    assert result.metrics[f"test/{name}/correct_n"] == COUNTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_some_of_them(name: str, shared: Path, tmp_path: Path) -> None:
    """The same of a few items of each, which takes a second; and that they are spaced evenly, not those at the head."""
    result = evaluate(name, shared, tmp_path / "run", RIGHT, limit=4)
    assert result.metrics[f"test/{name}/correct"] == 1.0
    places = [attempt.place for attempt in result.state.log.attempts(name)]
    assert places == [index * COUNTS[name] // 4 for index in range(4)]


@pytest.mark.slow
def test_hostile_answers_are_wrong_and_harm_nothing(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every program of the corpus that tries to pass without solving, to harm the host, or to break the sandbox."""
    # Many of them run for as long as they may.
    monkeypatch.setattr(built_in, "_GRADING", CodeGrading(timeout_seconds=3.0))
    corpus = Path(__file__).parents[2] / "grading"
    texts = [(corpus / name).read_text(encoding="utf-8") for name in ("hostile_programs.txt", "hostile_solutions.txt")]
    programs = [part.partition("\n")[2] for text in texts for part in text.split("\n=== ")[1:]]
    canary = tmp_path / "canary"
    canary.write_text("alive")
    programs = [
        program.replace("@CANARY@", str(canary)).replace("@PID@", str(os.getpid())).replace("@PORT@", "9")
        for program in programs
    ]
    given = iter(programs * 2)

    def hostile(row: Any) -> str:
        return f"```python\n{next(given).replace('solve', row['entry_point'])}\n```"

    result = evaluate("humaneval", shared, tmp_path / "run", {"humaneval": hostile}, limit=min(len(programs), 164))
    right = [a.place for a in result.state.log.attempts("humaneval") if a.num_right]
    assert right == []
    assert result.metrics["test/humaneval/failed"] == 0.0
    assert canary.read_text() == "alive"
    again = evaluate("humaneval", shared, tmp_path / "after", RIGHT, limit=10)
    assert again.metrics["test/humaneval/correct"] == 1.0, "the sandbox still works"
