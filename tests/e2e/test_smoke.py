"""Every recipe, shrunk to seconds, with an address and a key and nothing else said: served by us, and hosted."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import pytest
from tests.e2e.conftest import Cookhouse, exported_by

from cookhouse.recipes import config_fields, every_recipe, find_recipe
from cookhouse.runs import read_result
from cookhouse.settings import published_model_of

SHRUNK: Mapping[str, Any] = {
    "max_steps": 2,
    "batch_size": 4,
    "group_size": 2,
    "max_tokens": 16,
    "num_turns": 2,
    "num_eval": 2,
    "num_samples": 1,
    "eval_max_tokens": 8,
    "lora_rank": 4,
}
"""Of each recipe those settings that it has."""
UNREAD = {"preference_model": {"eval_max_tokens"}}
"""What a recipe refuses, since it reads it nowhere."""
NUM_STEPS = {"rlhf": 3 * SHRUNK["max_steps"], "eval": 0}
"""Of the recipes that consist of others, or train nothing."""
LIBRARIES = {"verifiers_rl": "verifiers", "textarena_rl": "textarena"}
HOSTED_PATIENCE_SECONDS = 1800.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    command = Cookhouse(tmp_path_factory.mktemp("serve"))
    yield exported_by(command.start("serve", "--port", "0", "--state-dir", "state"))
    command.close()


def settings_of(name: str, judge: str | None) -> list[str]:
    known = {field.name for field in config_fields(find_recipe(name))} - UNREAD.get(name, set())
    settings = [f"{setting}={value}" for setting, value in SHRUNK.items() if setting in known]
    return [*settings, f"preference_model={judge}"] if "preference_model" in known else settings


def check(
    cookhouse: Cookhouse, name: str, env: Mapping[str, str], patience: float, place: str, judge: str | None
) -> None:
    """Run a recipe where `env` says, and see that it trained there. `judge` compares answers, where that is needed."""
    library = LIBRARIES.get(name)
    if library is not None and find_spec(library) is None:
        pytest.skip(f"needs the library {library}")
    done = cookhouse.run("run", name, *settings_of(name, judge), "log_path=run", env=env, patience=patience)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"training at {place}" in done.stdout
    assert not (cookhouse.folder / "run/service").exists(), "it started an engine of its own"
    result = read_result(cookhouse.folder / "run")
    assert result is not None
    num_steps = NUM_STEPS.get(name, SHRUNK["max_steps"])
    assert (result.summary.num_steps, result.summary.is_interrupted) == (num_steps, False)
    files = cookhouse.folder.glob("run/**/metrics.jsonl")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len([row for row in rows if "optim/lr" in row]) == num_steps
    assert all(math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float))


@pytest.mark.slow
@pytest.mark.parametrize("name", [recipe.name for recipe in every_recipe()])
def test_served(cookhouse: Cookhouse, served: Mapping[str, str], name: str) -> None:
    check(cookhouse, name, served, 120.0, served["TINKER_BASE_URL"], "cookhouse/tiny")


@pytest.mark.hosted
@pytest.mark.skipif(not os.environ.get("TINKER_API_KEY"), reason="needs TINKER_API_KEY")
@pytest.mark.parametrize("name", [recipe.name for recipe in every_recipe()])
def test_hosted(cookhouse: Cookhouse, name: str) -> None:
    """With the published model and data, which are downloaded."""
    env = {"TINKER_API_KEY": os.environ["TINKER_API_KEY"], "HF_HUB_OFFLINE": "0"}
    judge = published_model_of(find_recipe(name).config_class)
    check(cookhouse, name, env, HOSTED_PATIENCE_SECONDS, "the hosted Tinker service", judge)
