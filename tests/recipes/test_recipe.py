import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.recipes import Recipe, config_fields, find_recipe, make_config
from cookhouse.recipes.aliases import ALGORITHMS
from cookhouse.settings import SupervisedSettings

PAGE = Path(__file__).parents[2] / "docs/how-to/published-algorithms.md"


@pytest.mark.parametrize("name", ["supervised", ":supervised", "sl_basic", "sl_basic_v2", "sft", "finetune"])
def test_recipe_is_found_by_name_and_alias(name: str) -> None:
    assert find_recipe(name) is find_recipe("supervised")


def test_unknown_recipe_lists_near_matches() -> None:
    with pytest.raises(UnknownNameError, match="did you mean supervised"):
        find_recipe("supervized")


@pytest.mark.parametrize("name", [*ALGORITHMS, "GRPO", "Dr-GRPO"])
def test_an_algorithm_is_the_settings_that_its_page_has(name: str) -> None:
    # Catches `grpo` that suggests dpo, and settings that are no longer those of the algorithm, or of the recipe.
    with pytest.raises(InputError, match=f"^{name} is no recipe; it is settings of rl: cookhouse run rl ") as caught:
        find_recipe(name)
    settings = str(caught.value).partition("cookhouse run rl ")[2].partition(" (")[0]
    assert f"`{settings}`" in PAGE.read_text(encoding="utf-8") or name == "ppo"
    make_config(find_recipe("rl"), dict(word.split("=") for word in settings.split()))


def test_where_no_name_is_near_the_likely_recipes_are_told() -> None:
    assert find_recipe("reward_model") is find_recipe("preference_model")
    with pytest.raises(InputError, match="train is no recipe; run supervised to learn from conversations, dpo"):
        find_recipe("train")
    with pytest.raises(UnknownNameError, match=r"allowed: supervised, dpo, rl, .* `cookhouse recipes` lists them"):
        find_recipe("zzz")


def test_table_and_configs_load_nothing_heavy() -> None:
    code = (
        "import sys, cookhouse.recipes as r\n"
        "for recipe in map(r.find_recipe, r.RECIPES.names()): recipe.config_class(); r.config_fields(recipe)\n"
        "print([m for m in ('tinker', 'torch', 'transformers', 'fastapi', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_texts_become_values() -> None:
    recipe = find_recipe("supervised")
    config = make_config(recipe, {"batch_size": "4", "learning_rate": "1e-3", "dataset_path": "a=b.jsonl"})
    assert (config.batch_size, config.learning_rate, config.dataset_path) == (4, 1e-3, "a=b.jsonl")
    assert config.lora_rank == 32


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("batch_siz", "4", "unknown setting of recipe supervised 'batch_siz'; did you mean batch_size"),
        ("batch_size", "four", "batch_size='four' does not fit; batch_size takes a whole number"),
        ("behavior_if_log_dir_exists", "overwrite", "'ask', 'delete', 'raise', 'resume'"),
    ],
)
def test_what_does_not_fit_is_named(key: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_config(find_recipe("supervised"), {key: text})


def test_resume_starts_from_the_recorded_config(tmp_path: Path) -> None:
    recorded = '{"recipe": "supervised", "config": {"batch_size": 7, "save_every": 3, "log_path": "elsewhere"}}'
    (tmp_path / "config.json").write_text(recorded)
    named = {"log_path": str(tmp_path), "save_every": "9"}
    recipe = find_recipe("supervised")
    config = make_config(recipe, {**named, "behavior_if_log_dir_exists": "resume"})
    assert (config.batch_size, config.save_every, config.log_path) == (7, 9, str(tmp_path))
    assert make_config(recipe, named).batch_size == 32


def test_a_run_of_another_recipe_is_not_resumed(tmp_path: Path) -> None:
    """Catches a complaint about settings, where the folder or the recipe is the wrong one."""
    (tmp_path / "config.json").write_text('{"recipe": "self_play", "config": {"target": 31}}')
    with pytest.raises(InputError, match="holds a run of self_play, not of supervised"):
        make_config(find_recipe("supervised"), {"log_path": str(tmp_path), "behavior_if_log_dir_exists": "resume"})


_FOREIGN = '{"recipe": "supervised", "config": {"no_such_field": 1}}'


@pytest.mark.parametrize("text", ["{", "[]", '{"config": {}}', '{"recipe": "supervised", "config": 3}', _FOREIGN])
def test_recorded_config_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"config\.json"):
        make_config(find_recipe("supervised"), {"log_path": str(tmp_path), "behavior_if_log_dir_exists": "resume"})


def test_fields_come_in_order_with_their_docs() -> None:
    fields = config_fields(find_recipe("supervised"))
    assert [field.name for field in fields[:3]] == ["model_name", "renderer_name", "force_renderer"]
    assert fields[0].default == "cookhouse/tiny, on the hosted service meta-llama/Llama-3.1-8B or its successor"
    assert fields[0].doc.startswith("Base model")


def test_config_that_is_no_declared_class_is_refused() -> None:
    """Else `run` would end in an attribute error, or lose the settings that an undecorated class adds."""

    class Undecorated(SupervisedSettings):
        extra: int = 3

    config_classes: list[Any] = [object, Undecorated]
    for config_class in config_classes:
        with pytest.raises(InputError, match=r"config_class of recipe mine .* decorated with @chz\.chz"):
            Recipe(name="mine", description="", config_class=config_class, workflow=find_recipe("supervised").workflow)
