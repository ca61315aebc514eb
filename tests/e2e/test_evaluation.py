"""Everything that names weights is evaluated, on the embedded engine."""

import json
from pathlib import Path
from typing import Any

import pytest

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.cli import main
from cookhouse.errors import InputError


def evaluate(weights: str, folder: str) -> list[str]:
    """What the first items were answered with."""
    settings = {"weights": weights, "limit": 6, "log_path": folder, "temperature": 0.0}
    result = cookhouse.run("eval", settings, adapters=Adapters.local(sinks=[]))
    assert result.metrics["test/arithmetic/correct_n"] == 6.0
    rows: list[dict[str, Any]] = [json.loads(line) for line in Path(folder, "answers.jsonl").read_text().splitlines()]
    assert json.loads(Path(folder, "config.json").read_text())["config"]["renderer_name"] == "human_ai"
    return [row["values"][0]["text"] for row in sorted(rows, key=lambda row: int(row["item"]))]


@pytest.mark.slow
def test_every_name_of_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches weights that are quietly the base model's, which answers otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = {"max_steps": 4, "num_eval": 0, "log_path": "runs/sums", "registered_model_name": "sums"}
    trained = cookhouse.run("rl_basic", settings, adapters=Adapters.local(sinks=[]))
    path = trained.summary.sampler_path
    assert path is not None
    with pytest.raises(SystemExit):
        main(["checkpoints", "export", "runs/sums", "adapter"])
    answers = {
        name: evaluate(name, f"runs/{number}")
        for number, name in enumerate(("runs/sums", "1", path, "sums@1", "adapter", "cookhouse/tiny"))
    }
    base = answers.pop("cookhouse/tiny")
    first, *others = answers.values()
    assert all(other == first for other in others)
    assert base != first


@pytest.mark.parametrize(
    ("weights", "said"),
    [("sums@3", "unknown registered model 'sums'"), ("tinker://gone/weights/x", "name its base model")],
)
def test_a_model_that_is_gone(weights: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(InputError, match=said):
        evaluate(weights, "runs/gone")
    assert not Path("runs/gone").exists()
