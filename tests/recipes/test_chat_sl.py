"""The chat recipe over the fake service: killed anywhere, it goes on from its last rolling checkpoint, to the bit."""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.recipes.events import Events

from cookhouse.adapters import Adapters
from cookhouse.errors import ServiceError
from cookhouse.recipes import find_recipe, make_config, run_async
from cookhouse.telemetry import read_metrics
from cookhouse.training import FakeService
from cookhouse.weights.checkpoints import CheckpointFile

pytestmark = pytest.mark.anyio

NUM_KILLS = 20


@pytest.fixture
def settings(conversations: Callable[..., Path]) -> dict[str, Any]:
    train, test = conversations("train.jsonl", 36), conversations("test.jsonl", 4)
    small = {"batch_size": 3, "num_epochs": 6, "eval_every": 5, "eval_max_tokens": 8, "num_samples": 0}
    return {"dataset_path": str(train), "test_path": str(test), "rolling_save_every": 2, "save_every": 7, **small}


def losses(folder: Path) -> list[tuple[float, float]]:
    return [(row["step"], row["train/loss"]) for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]


def test_the_defaults_are_the_published_ones() -> None:
    recipe = find_recipe("chat_sl")
    config = make_config(recipe, {"model_name": "meta-llama/Llama-3.1-8B"})
    named = ("dataset_path", "learning_rate", "batch_size", "max_length", "lora_rank", "lr_schedule", "num_epochs")
    assert [getattr(config, name) for name in named] == ["no_robots", 1e-4, 256, 16384, 32, "linear", 1]
    assert (config.save_every, config.rolling_save_every) == (20, 0)
    assert make_config(recipe, {"dataset": "tulu3"}).dataset_path == "tulu3"


async def test_a_default_that_nothing_reads_is_told_when_a_run_starts(settings: dict[str, Any], tmp_path: Path) -> None:
    # Catches a cadence of evaluators of which there are none, and of which nobody hears.
    events = Events()
    del settings["eval_max_tokens"]
    config = {**settings, "max_steps": 1, "num_eval": 0, "log_path": str(tmp_path / "run")}
    await run_async("chat_sl", config, adapters=Adapters(service=FakeService().connect, sinks=[events]))
    notes = [event.text["text"] for event in events.all if event.name == "data.note"]
    told = "by default infrequent_eval_every=100, which changes nothing here: it is read with infrequent_evaluators"
    assert notes.count(told) == 1


@pytest.mark.slow
async def test_killed_at_twenty_random_points_it_gives_the_same_losses(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """Catches a rolling checkpoint that is deleted too early, or holds what belongs to another step."""
    whole = {**settings, "log_path": str(tmp_path / "whole")}
    await run_async("chat_sl", whole, adapters=Adapters(service=FakeService().connect, sinks=[]))
    chance = random.Random(5)
    config = {**settings, "log_path": str(tmp_path / "killed"), "behavior_if_log_dir_exists": "resume"}
    states: dict[str, Any] = {}
    num_left = NUM_KILLS
    while True:
        answers, last = count(), chance.randrange(4, 24) if num_left else -1

        async def gate(kind: str, number: int, answers: Any = answers, last: int = last) -> None:
            del number
            if kind != "close" and next(answers) == last:
                raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

        service = FakeService(states=states, gate=gate)
        try:
            await run_async("chat_sl", config, adapters=Adapters(service=service.connect, sinks=[]))
        except ServiceError:
            num_left -= 1
            recorded = CheckpointFile(tmp_path / "killed/checkpoints.jsonl").read()
            assert {each.state_path for each in recorded} <= set(states), "what is recorded is gone"
            continue
        break
    assert num_left == 0, f"it was killed only {NUM_KILLS - num_left} times"
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


async def test_a_finished_run_keeps_no_rolling_checkpoint(settings: dict[str, Any], tmp_path: Path) -> None:
    service = FakeService()
    config = {**settings, "max_steps": 6, "save_every": 4, "log_path": str(tmp_path / "run")}
    await run_async("chat_sl", config, adapters=Adapters(service=service.connect, sinks=[]))
    recorded = CheckpointFile(tmp_path / "run/checkpoints.jsonl").read()
    assert [each.name for each in recorded] == ["000004", "final"]
    assert len(service.states) == 3  # of which `final` are two
    # After 5 there was none: the last one was of step 2.
    config = {**settings, "max_steps": 6, "save_every": 0, "log_path": str(tmp_path / "other")}
    await run_async("chat_sl", config, adapters=Adapters(service=(other := FakeService()).connect, sinks=[]))
    assert [each.name for each in CheckpointFile(tmp_path / "other/checkpoints.jsonl").read()] == ["final"]
    assert len(other.states) == 2
