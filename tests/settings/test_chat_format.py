"""Catches runs that go on with weights in another chat format than the one that these were trained in."""

import json
from pathlib import Path
from typing import Any

import chz
import pytest

from cookhouse.errors import InputError
from cookhouse.recipes import Recipe, every_recipe
from cookhouse.recipes.recipe import find_recipe
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.registry import Artifact, NewModel, open_registry
from cookhouse.settings import check_format_of_weights
from cookhouse.weights.checkpoints import Checkpoint, CheckpointFile

TRAINED = "role_colon"  # the default of no recipe


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The folder of a run, as far as its weights' origin is read from it."""
    folder = tmp_path / "trained"
    folder.mkdir()
    settings = {"model_name": "cookhouse/tiny", "renderer_name": TRAINED}
    (folder / "config.json").write_text(json.dumps({"config": settings}))
    saved = Checkpoint(
        name="final",
        epoch=0,
        batch=1,
        step=1,
        final=True,
        state_path="tinker://run/weights/final",
        sampler_path="tinker://run/sampler_weights/final",
    )
    CheckpointFile(folder / "checkpoints.jsonl").append(saved)
    return folder


GOING_ON = [
    recipe
    for recipe in every_recipe()
    if {"load_checkpoint_path", "renderer_name"} <= chz.chz_fields(recipe.config_class).keys()
]


@pytest.mark.parametrize("recipe", GOING_ON, ids=lambda recipe: recipe.name)
def test_a_run_goes_on_in_the_format_of_its_weights(recipe: Recipe[Any], trained: Path) -> None:
    make = recipe.config_class
    begun, named = (
        make(load_checkpoint_path=str(trained)),
        make(load_checkpoint_path=str(trained), renderer_name="llama3"),
    )
    assert begun.renderer_name == TRAINED
    assert named.renderer_name == "llama3"
    check_format_of_weights(begun)
    with pytest.raises(
        InputError, match=f"trained in the chat format {TRAINED}.*renderer_name={TRAINED}, or force_renderer"
    ):
        check_format_of_weights(named)


def test_a_registered_model_and_a_path_have_a_format_too(trained: Path, tmp_path: Path) -> None:
    path = "tinker://run/weights/final"
    config = SupervisedConfig(load_checkpoint_path=path, log_path=str(tmp_path / "next"))
    assert config.renderer_name == TRAINED
    database = tmp_path / "models.db"
    artifact, run_folder = Artifact(path=path), str(trained)
    new = NewModel(name="sums", base_model="cookhouse/tiny", artifact=artifact, run_folder=run_folder)
    open_registry(str(database), {}).register(new)
    named = SupervisedConfig(load_checkpoint_path="sums@1", registry=str(database))
    assert named.renderer_name == TRAINED


@pytest.mark.parametrize(("recipe", "setting"), [("dpo", "reference_model"), ("rl_basic", "kl_reference")])
def test_a_reference_reads_the_format_of_the_run(recipe: str, setting: str, trained: Path) -> None:
    make = find_recipe(recipe).config_class
    settings: dict[str, Any] = {setting: str(trained), **({"kl_coef": 0.1} if recipe == "rl_basic" else {})}
    with pytest.raises(InputError, match=f"{setting} .* was trained in the chat format {TRAINED}"):
        check_format_of_weights(make(**settings))
    check_format_of_weights(make(**settings, force_renderer=True))
    check_format_of_weights(make(**settings, renderer_name=TRAINED))


def test_weights_of_which_nothing_is_known_are_taken() -> None:
    check_format_of_weights(SupervisedConfig(load_checkpoint_path="tinker://elsewhere/weights/1"))
