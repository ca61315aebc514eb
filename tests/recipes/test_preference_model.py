"""The recipe preference_model from config to result, over the fake service."""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.errors import BadRowsError, InputError
from cookhouse.recipes import dry_run, find_recipe, run_async
from cookhouse.recipes.preference_model import Config
from cookhouse.telemetry import Event, read_metrics
from cookhouse.training import FakeService
from cookhouse.workflows import preference_model_workflow

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., Config]
Rows = Sequence[Mapping[str, Any]]


def write(path: Path, rows: Rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def some(start: int, count: int) -> list[dict[str, Any]]:
    numbers = range(start, start + count)
    return [
        {"prompt": f"say {n}", "completion_a": f"{n}", "completion_b": f"no {n}", "label": "AB"[n % 2]} for n in numbers
    ]


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    train, test = write(tmp_path / "train.jsonl", some(0, 12)), write(tmp_path / "test.jsonl", some(20, 4))

    def make(**settings: Any) -> Config:
        small: dict[str, Any] = {
            "dataset_path": train,
            "test_path": test,
            "log_path": str(tmp_path / "run"),
            "batch_size": 8,
            "num_epochs": 2,
            "max_steps": None,
            "save_every": 2,
            "learning_rate": 0.1,
        }
        return Config(**(small | {"max_steps": 6} | settings))

    return make


async def run(config: Config, service: FakeService, *sinks: Events) -> Any:
    return await run_async("preference_model", config, adapters=Adapters(service=service.connect, sinks=[*sinks]))


def trained(folder: Path) -> list[dict[str, Any]]:
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]


async def test_a_run_learns_labels_alone_and_tells_how_sure_its_accuracy_is(make_config: MakeConfig) -> None:
    events = Events()
    result = await run(make_config(), FakeService(), events)
    summary, folder = result.summary, result.summary.folder
    assert (summary.num_steps, summary.total_steps) == (6, 6)  # 12 comparisons in both orders, twice
    rows = trained(folder)
    assert [row["train/num_trained_tokens"] for row in rows] == [8.0] * 6
    assert summary.after("test/nll") < summary.before("test/nll")
    # The fake model looks at the label alone: whichever answer stands first, so that it prefers none.
    found = result.state.eval_results
    assert found["test/accuracy"] == 0.5
    assert found["test/accuracy_low"] < 0.5 < found["test/accuracy_high"]
    assert found["test/order_disagreement"] == 1.0
    assert events.names.count("training.step") == 6
    noted = json.loads((folder / "evaluations" / "000006-comparisons.json").read_text())
    [scope] = noted["entries"]
    assert scope["entries"][0]["columns"][:4] == ["prompt", "completion A", "completion B", "label"]
    assert "evaluations/000006-comparisons.html" in (folder / "report.html").read_text()


async def test_ctrl_c_and_a_resume_give_the_run_that_was_not_disturbed(make_config: MakeConfig, tmp_path: Path) -> None:
    whole = await run(make_config(log_path=str(tmp_path / "whole")), FakeService())

    def press(event: Event) -> None:
        if event.name == "training.step" and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    service = FakeService()
    stopped = await run(make_config(), service, Events(press))
    assert stopped.summary.is_interrupted
    later = FakeService(states=service.states)
    resumed = await run(make_config(behavior_if_log_dir_exists="resume"), later)
    assert trained(resumed.summary.folder) == trained(whole.summary.folder)
    assert resumed.summary.after("test/nll") == whole.summary.after("test/nll")


@pytest.mark.parametrize(
    ("settings", "rows", "reason"),
    [
        ({"ties": "refuse"}, [{"label": "Tie"}], r"train.jsonl:13: the label is Tie; set ties=label"),
        ({}, [{"completion_a": " "}], r"train.jsonl:13: completion_a is empty; a comparison needs two answers"),
        ({}, [{"completion_a": "same", "completion_b": "same"}], r"train.jsonl:13: both answers are the same"),
        ({}, [{"label": "C"}], r"train.jsonl:13: label must be A, B or Tie, not 'C'"),
    ],
)
async def test_rows_that_teach_nothing_are_refused_by_their_line(
    make_config: MakeConfig, tmp_path: Path, settings: dict[str, Any], rows: Rows, reason: str
) -> None:
    bad = [{**some(99, 1)[0], **row} for row in rows]
    path = write(tmp_path / "train.jsonl", [*some(0, 12), *bad])
    with pytest.raises(BadRowsError, match=reason):
        await run(make_config(dataset_path=path, **settings), FakeService())
    assert not (tmp_path / "run").exists()


async def test_ties_are_left_out_where_that_is_asked_for(make_config: MakeConfig, tmp_path: Path) -> None:
    path = write(tmp_path / "train.jsonl", [*some(0, 12), {**some(99, 1)[0], "label": "Tie"}])
    result = await run(make_config(dataset_path=path, ties="skip"), FakeService())
    assert "1 ties are left out" in result.state.context.notes
    assert len(result.state.comparisons.dataset.examples) == 24
    assert dict(result.state.context.folder.config)["ties"] == "skip"


def test_a_dry_run_says_what_would_be_learned(make_config: MakeConfig, tmp_path: Path) -> None:
    plan = dry_run("preference_model", make_config(swap=False))
    assert plan.facts["comparisons"] == "12 to train on (6 A, 6 B), 4 held out"
    assert plan.facts["orders"] == "one of each comparison, drawn by the seed"
    assert plan.previews[0][-1][1]
    assert not (tmp_path / "run").exists()


def test_known_sets_of_another_kind_are_refused(make_config: MakeConfig) -> None:
    with pytest.raises(InputError, match="no_robots holds conversations, and this run needs preferences"):
        dry_run("preference_model", make_config(dataset_path="no_robots", test_path=None))


def test_published_defaults_and_stages() -> None:
    # Catches a rate of the small model that is taken for a large one.
    config = Config(model_name="Qwen/Qwen3.5-9B-Base")
    assert (config.learning_rate, config.lora_rank, config.batch_size, config.max_steps) == (3e-4, 64, 256, None)
    assert (config.dataset_path, config.max_length) == ("hh", 16384)
    assert find_recipe("preference_model").config_class is Config
    tree = preference_model_workflow(Config()).describe()
    for name in ("load_dataset", "build_comparison_dataset", "get_comparison_batch", "forward_backward", "save_final"):
        assert name in tree
