"""Rows given from Python where a setting names data."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cookhouse.adapters import Adapters
from cookhouse.errors import BadRowsError, InputError
from cookhouse.recipes import dry_run, run_async
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.runs.samples import read_answers
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService

pytestmark = pytest.mark.anyio

ROWS = [{"prompt": f"say {number}", "completion": f"{number} is said"} for number in range(6)]
CHANGED = [*ROWS[:4], {"prompt": "say 4", "completion": "5 is said"}, ROWS[5]]


def make_rows() -> Iterator[dict[str, str]]:
    yield from ROWS


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {"log_path": str(folder), "batch_size": 2, "num_eval": 2, "eval_max_tokens": 4, "save_every": 1, **more}


def losses(folder: Path) -> list[float]:
    return [row["train/loss"] for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]


async def run(config: Any, service: FakeService | None = None, recipe: str = "supervised") -> Any:
    return await run_async(recipe, config, adapters=Adapters(service=(service or FakeService()).connect, sinks=[]))


@pytest.mark.parametrize(
    ("given", "recorded"), [(ROWS, "<list of 6 rows>"), (make_rows, "<function make_rows>")], ids=["list", "function"]
)
async def test_rows_given_train_as_those_of_a_file_do(tmp_path: Path, given: Any, recorded: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    await run(settings(tmp_path / "file", dataset_path=str(path)))
    await run(settings(tmp_path / "given", dataset=given, test_path=ROWS[:2]))
    await run(SupervisedConfig(**settings(tmp_path / "config", dataset_path=given)))
    assert losses(tmp_path / "given") == losses(tmp_path / "config") == losses(tmp_path / "file")
    config = json.loads((tmp_path / "given/config.json").read_text())["config"]
    assert (config["dataset_path"], config["test_path"]) == (recorded, "<list of 2 rows>")


PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
    "hgGAWjR9awAAAABJRU5ErkJggg=="
)
SEEN = {"role": "user", "content": [{"type": "image", "image": PIXEL}, {"type": "text", "text": "which?"}]}


@pytest.mark.parametrize(
    ("recipe", "row"),
    [
        ("dpo", {"prompt": [SEEN], "chosen": "a", "rejected": "b"}),
        ("preference_model", {"prompt": [SEEN], "completion_a": "a", "completion_b": "b", "label": "A"}),
        ("off_policy_distillation", {"messages": [SEEN]}),
        ("rl", {"messages": [SEEN]}),
    ],
)
def test_a_dry_run_refuses_images_where_they_are_not_trained_on(recipe: str, row: Any, tmp_path: Path) -> None:
    """Catches images that only a run finds, by an error of the SDK's."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n" + json.dumps(row) + "\n")
    seeing = {"renderer_name": "qwen3_vl_instruct", "force_renderer": True, "dataset_path": str(path)}
    more = {"env": "prompts"} if recipe == "rl" else {}
    with pytest.raises(BadRowsError, match=r"rows\.jsonl:2: message 1 holds an image"):
        dry_run(recipe, {**seeing, **more})


async def test_supervised_training_asks_about_held_out_images(tmp_path: Path) -> None:
    """Catches an evaluation that ends the run because a question holds an image."""
    pytest.importorskip("PIL", reason="needs the extra 'vision'")
    rows = [{"messages": [SEEN, {"role": "assistant", "content": "red"}]}]
    seeing = {"renderer_name": "qwen3_vl_instruct", "force_renderer": True, "dataset": rows, "test_path": rows}
    await run(settings(tmp_path / "run", max_steps=1, **seeing))
    [answer] = read_answers(tmp_path / "run/samples/000000.json")
    assert answer.prompt == "[image]which?"


async def test_held_out_answers_have_their_conversations(tmp_path: Path) -> None:
    """Catches "Where?" alone in the answers of a run, which nobody can judge."""
    call = {"type": "function", "function": {"name": "look", "arguments": {"at": "the shelf"}}}
    turns: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "It is on the shelf."},
        {"role": "assistant", "content": "Yes.", "tool_calls": [call]},
        {"role": "user", "content": "Where?"},
    ]
    rows = [{"messages": [*turns, {"role": "assistant", "content": "There."}]}]
    result = await run(settings(tmp_path / "run", max_steps=1, dataset=rows, test_path=rows, renderer_name="qwen3"))
    earlier = (
        ("system", "Be brief."),
        ("user", "It is on the shelf."),
        ("assistant", 'Yes.\nlook({"at": "the shelf"})'),
    )
    [answer] = read_answers(tmp_path / "run/samples/000000.json")
    assert (answer.earlier, answer.prompt) == (earlier, "Where?")
    assert [sample.earlier for sample in result.summary.samples] == [earlier]


async def test_a_resume_needs_the_same_rows(tmp_path: Path) -> None:
    """Catches rows that leave no trace in the run directory, so that others are taken for them."""
    service, folder = FakeService(), tmp_path / "run"
    await run(settings(folder, dataset=ROWS), service)
    again = settings(folder, behavior_if_log_dir_exists="resume")
    with pytest.raises(InputError, match=r"<list of 6 rows> has changed .* the first that is different is line 5"):
        await run({**again, "dataset": CHANGED}, service)
    with pytest.raises(InputError, match=r"dataset_path='<list of 3 rows>', but the run in .* '<list of 6 rows>'"):
        await run({**again, "dataset": ROWS[:3]}, service)
    with pytest.raises(InputError, match=r"<list of 6 rows> were rows given from Python, which no file holds"):
        await run(again, service)
    await run({**again, "dataset": [*ROWS]}, service)


async def test_other_recipes_take_them_too(tmp_path: Path) -> None:
    pairs = [{"prompt": f"say {number}", "chosen": f"{number}", "rejected": "no"} for number in range(4)]
    result = await run(settings(tmp_path / "dpo", dataset=pairs), recipe="dpo")
    assert result.summary.num_steps == 2
    await run({"log_path": str(tmp_path / "flat"), "batch_size": 2, "dataset": make_rows}, recipe="sl_loop")
    assert len(losses(tmp_path / "flat")) == 3


def test_a_plan_says_what_was_given() -> None:
    plan = dry_run("supervised", {"dataset": ROWS, "n_train_samples": 4, "num_eval": 0})
    assert plan.config["dataset_path"] == "<list of 6 rows>"
    assert plan.facts["conversations"].startswith("4 to train on")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (make_rows(), "a generator gives its rows only once; give a list of rows, a function"),
        ({"messages": []}, "a dict is no data set; give a list of rows"),
        (3, "an int is no data set"),
        ([], "<list of 0 rows> holds no conversations"),
    ],
    ids=["generator", "row", "number", "none"],
)
def test_what_is_no_set_of_rows_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dry_run("supervised", {"dataset": given})


def test_a_bad_row_is_named_by_what_was_given_and_its_number() -> None:
    with pytest.raises(BadRowsError, match="<list of 2 rows> row 2: "):
        dry_run("supervised", {"dataset": [ROWS[0], {"said": 3}]})


def test_a_function_that_raises_is_named() -> None:
    rows: Callable[[], Any] = lambda: [][0]  # noqa: E731
    with pytest.raises(InputError, match=r"data set <function .*lambda.* gives no rows: IndexError"):
        dry_run("supervised", {"dataset": rows})
