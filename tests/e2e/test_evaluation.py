"""Everything that names weights is evaluated, on the local engine, and by OpenAI's protocol as by the SDK."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.hosting import KEY, Host, hosted

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.cli import main
from cookhouse.engine import TorchEngine
from cookhouse.errors import InputError
from cookhouse.models.catalog import default_renderer


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
    [("sums@3", "unknown registered model 'sums'"), ("tinker://gone/weights/x", "names the base model of")],
)
def test_a_model_that_is_gone(weights: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(InputError, match=said):
        evaluate(weights, "runs/gone")
    assert not Path("runs/gone").exists()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(
        tmp_path_factory.mktemp("state"), lambda: TorchEngine(base_models=["cookhouse/tiny"], precision="float32")
    ) as host:
        yield host


@pytest.mark.parametrize("num_samples", [1, 3])
@pytest.mark.usefixtures("fused_sampling")
def test_the_same_weights_by_either_protocol(
    num_samples: int, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches another prompt, seed or length by OpenAI's protocol than by the SDK, or answers that are read otherwise:
    greedily and at temperature 1, every answer and every figure are equal.
    """
    monkeypatch.chdir(tmp_path)
    asked = {"weights": "cookhouse/tiny", "limit": 12, "num_samples": num_samples, "seed": 5}
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    by_openai = cookhouse.run("eval", asked | {"log_path": "openai", "openai_base_url": f"{host.url}/v1"})
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    renderer = {"renderer_name": default_renderer("cookhouse/tiny")}
    by_sdk = cookhouse.run("eval", asked | {"log_path": "sdk", "base_url": host.url} | renderer)
    assert by_openai.metrics == by_sdk.metrics
    texts = [_texts(folder) for folder in ("openai", "sdk")]
    assert texts[0] == texts[1]
    assert len({text for answers in texts[0].values() for text in answers}) > 3


def _texts(folder: str) -> dict[int, list[str]]:
    rows = [json.loads(line) for line in Path(folder, "answers.jsonl").read_text().splitlines()]
    return {int(row["item"]): [value["text"] for value in row["values"]] for row in rows}
