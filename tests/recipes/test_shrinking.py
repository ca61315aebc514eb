"""A run is tried on little: what shrinks it holds for every recipe that takes it."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import chz
import pytest

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.recipes import every_recipe, find_recipe

NEEDS_LIBRARY = {"verifiers_rl": "verifiers", "textarena_rl": "textarena"}
NEEDED = {"preference_rl": {"preference_model": "anybody"}}
"""Settings without which a recipe has nothing to run on."""

SHRUNK = {"n_batches": 2, "num_epochs": 2, "max_steps": 9, "batch_size": 2, "group_size": 2, "num_eval": 0}


def recipes_with(setting: str) -> list[Any]:
    names = sorted(recipe.name for recipe in every_recipe() if setting in chz.chz_fields(recipe.config_class))
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                name in NEEDS_LIBRARY and importlib.util.find_spec(NEEDS_LIBRARY[name]) is None,
                reason=f"needs {NEEDS_LIBRARY.get(name)}",
            ),
        )
        for name in names
    ]


@pytest.mark.parametrize("recipe", recipes_with("n_batches"))
def test_an_epoch_has_so_many_batches(recipe: str, tmp_path: Path) -> None:
    """Catches a recipe that takes `n_batches` and trains on all of its data, or begins no epoch anew."""
    known = chz.chz_fields(find_recipe(recipe).config_class)
    shrunk = {name: value for name, value in SHRUNK.items() if name in known}
    num_epochs = shrunk.get("num_epochs", 1)
    settings = {**shrunk, **NEEDED.get(recipe, {}), "log_path": str(tmp_path / "run")}
    cookhouse.run(recipe, settings, adapters=Adapters.noop(sinks=[]))
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "optim/lr" in row]
    assert len(steps) == shrunk["n_batches"] * num_epochs
    epochs = [row["progress/epoch"] for row in steps if "progress/epoch" in row]
    assert epochs in ([], [0, 0, 1, 1])
