"""Benchmarks as evaluators of runs that train."""

import json
from pathlib import Path
from typing import Any

import pytest

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.errors import BadRowsError, UnknownNameError
from cookhouse.evals import EVALUATORS
from cookhouse.training import FakeService

SMALL: dict[str, Any] = {
    "batch_size": 2,
    "num_eval": 4,
    "renderer_name": "human_ai",
    "behavior_if_log_dir_exists": "delete",
}


def run(recipe: str, folder: Path, **settings: Any) -> list[dict[str, Any]]:
    more = {"group_size": 2} if recipe == "rl" else {}
    values = {"max_steps": 4, "log_path": str(folder / "run"), **SMALL, **more, **settings}
    cookhouse.run(recipe, values, adapters=Adapters(service=FakeService().connect, sinks=[]))
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "test/arithmetic/correct" in row]


@pytest.mark.parametrize("recipe", ["supervised", "rl"])
@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"evaluators": "arithmetic", "eval_every": 2}, [0, 2, 4]),
        ({"infrequent_evaluators": "arithmetic", "infrequent_eval_every": 3}, [3, 4]),
    ],
)
def test_a_benchmark_is_measured_at_its_cadence_and_of_the_final_weights(
    recipe: str, settings: dict[str, Any], steps: list[int], tmp_path: Path
) -> None:
    rows = run(recipe, tmp_path, **settings)
    assert [row["step"] for row in rows] == steps
    assert {row["test/arithmetic/correct_n"] for row in rows} == {4}
    pages = list((tmp_path / "run/evaluations").glob("*.html"))
    assert len(pages) == len(steps)
    assert "expected" in pages[0].read_text()


def test_rows_are_read_from_where_the_settings_say(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "Compute 1 + 1.", "answer": "2"}\n')
    rows = run("supervised", tmp_path, evaluators="arithmetic", benchmark_data=str(file))
    assert {row["test/arithmetic/correct_n"] for row in rows} == {1}


def test_without_items_nothing_is_asked(tmp_path: Path) -> None:
    """Catches 0 items taken for all of them."""
    assert run("supervised", tmp_path, evaluators="arithmetic", num_eval=0) == []


def test_bad_rows_and_unknown_names_are_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "Compute 1 + 1.", "answer": "two"}\n')
    with pytest.raises(BadRowsError, match=r"mine\.jsonl:1: answer must be a whole number"):
        run("supervised", tmp_path, evaluators="arithmetic", benchmark_data=str(file))
    with pytest.raises(UnknownNameError, match="did you mean arithmetic"):
        run("supervised", tmp_path, evaluators="arithmetik")


def test_every_benchmark_is_an_evaluator() -> None:
    assert {"arithmetic", "gsm8k", "math500", "humaneval", "mbpp"} <= set(EVALUATORS.names())
