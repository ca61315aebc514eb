"""Configs from files, dicts and other systems' names."""

import json
from pathlib import Path
from typing import Any

import chz
import pytest
from tinker.lib.base_url import DEFAULT_BASE_URL

from cookhouse.adapters import Adapters, Service
from cookhouse.errors import InputError
from cookhouse.recipes import (
    aliases_of,
    config_fields,
    every_recipe,
    find_recipe,
    make_config,
    read_config_file,
    settle,
)
from cookhouse.recipes.run_sweep import read_grid
from cookhouse.settings import AdapterSettings, RunSettings, defaults_taken, published_model_of

RL = find_recipe("rl_basic")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.yaml", "batch_size: 8\nlearning_rate: 1e-3\nmodel_name: cookhouse/tiny\n"),
        ("run.toml", 'batch_size = 8\nlearning_rate = 1e-3\nmodel_name = "cookhouse/tiny"\n'),
        ("run.json", '{"batch_size": 8, "learning_rate": 1e-3, "model_name": "cookhouse/tiny"}'),
    ],
)
def test_every_kind_of_file_makes_the_same_config(tmp_path: Path, name: str, text: str) -> None:
    # Catches YAML's 1e-3, which is a text by its rules.
    (tmp_path / name).write_text(text)
    config = make_config(RL, read_config_file(tmp_path / name))
    assert config == make_config(RL, {"batch_size": 8, "learning_rate": 1e-3})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("run.yaml", "batch_size: [8\n", r"run\.yaml cannot be read as a config: .* line 2"),
        ("run.toml", "batch_size = = 8\n", r"run\.toml cannot be read as a config: .* line 1"),
        ("run.json", '{"batch_size": 8,}', r"run\.json cannot be read as a config: .* line 1"),
        ("run.yaml", "- 8\n", "holds no settings by name"),
        ("run.ini", "batch_size=8\n", r"ends in \.ini; a config file ends in \.json, \.toml, \.yaml"),
    ],
)
def test_a_file_that_is_none_is_named_with_the_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_config_file(tmp_path / name)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*run\.yaml; name one"):
        read_config_file(tmp_path / "run.yaml")


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("!!python/object/apply:os.system ['true']\n")
    with pytest.raises(InputError, match="cannot be read as a config"):
        read_config_file(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"groups_per_batch": 4}, {"batch_size": 4}),
        ({"num_rollouts": "4", "groups_per_batch": "2"}, {"max_steps": 4, "num_epochs": 4, "batch_size": 2}),
        ({"kl_penalty_coef": 0.1, "reference_model_name": "m"}, {"kl_coef": 0.1, "kl_reference": "m"}),
        ({"loss_fn": "ppo", "clip_epsilon": "0.25"}, {"loss_fn": "ppo", "clip_low": 0.75, "clip_high": 1.25}),
        ({"remove_constant_reward_groups": "True"}, {"constant_reward_groups": "remove"}),
        ({"remove_constant_reward_groups": False}, {"constant_reward_groups": "keep"}),
    ],
)
def test_names_of_other_systems_are_understood(given: dict[str, Any], meant: dict[str, Any]) -> None:
    assert make_config(RL, given) == make_config(RL, meant)


def test_a_loss_over_pairs_has_a_name_of_its_own() -> None:
    # Catches one name for a loss over pairs and one over tokens, and a way out that names neither.
    dpo = find_recipe("dpo")
    plain = make_config(dpo, {"pair_loss": "ipo", "dpo_beta": 0.3})
    assert make_config(dpo, {"loss_type": "ipo", "beta": 0.3}) == plain
    with pytest.raises(InputError, match=r"unknown setting of recipe dpo 'loss_fn'; did you mean .*pair_loss"):
        make_config(dpo, {"loss_fn": "ipo"})
    for recipe in every_recipe():
        assert not {"loss_fn", "pair_loss"} <= {field.name for field in config_fields(recipe)}, recipe.name


def test_a_name_of_another_system_with_another_value_is_refused() -> None:
    with pytest.raises(InputError, match="remove_constant_reward_groups is 'some'; it must be true or false"):
        make_config(RL, {"remove_constant_reward_groups": "some"})


@pytest.mark.parametrize("recipe", ["code_rl", "rl_basic"])
def test_a_clip_asks_for_the_loss_that_clips(recipe: str) -> None:
    # Catches a clip that is refused by the defaults of the model, and one that overrides a loss that was asked for.
    clipped = make_config(find_recipe(recipe), {"clip_epsilon": "0.25"})
    assert (clipped.loss_fn, clipped.clip_low, clipped.clip_high) == ("ppo", 0.75, 1.25)
    assert make_config(find_recipe(recipe), {}).loss_fn == "importance_sampling"
    named = settle(find_recipe(recipe), {"run.yaml": {"loss_fn": "cispo"}, "flag": {"clip_epsilon": 0.25}})
    assert (named.config.loss_fn, named.config.clip_low) == ("cispo", 0.75)


@pytest.mark.parametrize(
    ("recipe", "given", "setting", "meant"),
    [
        ("code_rl", ":deepcoder", "env", "deepcoder"),
        ("rl", ":arithmetic, :gsm8k", "env", "arithmetic,gsm8k"),
        ("rl", "mine.py:ENV", "env", "mine.py:ENV"),
        ("rl_basic", ":linear", "lr_schedule", "linear"),
        ("eval", ":no", "system_prompt", ":no"),
    ],
)
def test_names_may_have_a_leading_colon(recipe: str, given: str, setting: str, meant: str) -> None:
    assert getattr(make_config(find_recipe(recipe), {setting: given}), setting) == meant


def test_evaluations_know_the_names_of_others() -> None:
    config = make_config(find_recipe("eval"), {"model_path": "cookhouse/tiny-chat", "tasks": "mine.py@sums"})
    assert (config.weights, config.inspect) == ("cookhouse/tiny-chat", "mine.py@sums")


@pytest.mark.parametrize("given", [{"team": "a", "run": "3"}, '{"team": "a", "run": "3"}'])
def test_metadata_is_a_mapping_or_its_json(given: Any) -> None:
    config = make_config(find_recipe("supervised"), {"user_metadata": given})
    assert config.user_metadata == {"team": "a", "run": "3"}
    assert read_grid("supervised", {"user_metadata": '{"team": "a", "run": "3"}'})[1] == {}


def test_metadata_that_is_none_is_told_how_to_write_it() -> None:
    with pytest.raises(InputError, match=r"user_metadata takes a mapping of texts, such as \{\"team\": \"a\"\}"):
        make_config(find_recipe("supervised"), {"user_metadata": "team=a"})


def test_a_setting_by_two_names_is_refused() -> None:
    with pytest.raises(InputError, match="groups_per_batch is another name of batch_size, which is given as well"):
        make_config(RL, {"groups_per_batch": 4, "batch_size": 8})


def test_no_alias_hides_a_setting() -> None:
    # Catches an alias that is a setting of some recipe: it would mean two things.
    settings = {field.name for recipe in every_recipe() for field in config_fields(recipe)}
    aliases = {name for recipe in every_recipe() for name in aliases_of(recipe.config_class)}
    assert {"kl_penalty_coef", "loss_type", "rank"} <= aliases
    assert not settings & aliases


def test_a_later_layer_overrides_and_is_named() -> None:
    settled = settle(RL, {"run.yaml": {"batch_size": 4, "seed": 1}, "flag": {"seed": "2"}})
    assert (settled.config.batch_size, settled.config.seed) == (4, 2)
    assert (settled.origins["batch_size"], settled.origins["seed"]) == ("run.yaml", "flag")


HOSTED = Adapters.hosted(api_key="tml-key").service


@pytest.mark.parametrize(
    ("environ", "service", "given", "model"),
    [
        ({}, None, {}, "cookhouse/tiny"),
        ({"TINKER_API_KEY": "tml-key"}, None, {}, "Qwen/Qwen3.5-9B-Base"),
        ({"TINKER_CREDENTIAL_CMD": "pass"}, None, {}, "Qwen/Qwen3.5-9B-Base"),
        ({"TINKER_API_KEY": "tml-key"}, None, {"model_name": "Qwen/Qwen3-8B"}, "Qwen/Qwen3-8B"),
        ({"TINKER_API_KEY": "tml-key", "TINKER_BASE_URL": "http://127.0.0.1:8000"}, None, {}, "cookhouse/tiny"),
        ({"TINKER_API_KEY": "tml-key"}, None, {"base_url": "http://127.0.0.1:8000"}, "cookhouse/tiny"),
        ({"TINKER_API_KEY": "tml-key", "TINKER_BASE_URL": DEFAULT_BASE_URL}, None, {}, "Qwen/Qwen3.5-9B-Base"),
        ({"TINKER_API_KEY": "tml-key"}, Adapters.local().service, {}, "cookhouse/tiny"),
        ({"TINKER_API_KEY": "tml-key"}, Adapters.noop().service, {}, "cookhouse/tiny"),
        ({}, HOSTED, {}, "Qwen/Qwen3.5-9B-Base"),
    ],
)
def test_the_service_decides_on_the_model_that_nobody_names(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], service: Service, given: dict[str, Any], model: str
) -> None:
    """Catches a hosted run that asks for the embedded model, and a served engine asked for the published one."""
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    settled = settle(RL, {"key=value": given}, service)
    assert settled.config.model_name == model
    assert settled.config.learning_rate == (2e-3 if model == "cookhouse/tiny" else 4e-5)
    assert make_config(RL, RL.config_class(**given), service) == make_config(RL, given, service) == settled.config
    is_embedded = model == "cookhouse/tiny"
    assert settled.origins["batch_size"] == ("embedded default" if is_embedded else "published default")
    origin = "key=value" if "model_name" in given else "default" if is_embedded else "published default"
    assert settled.origins["model_name"] == origin


def test_a_resumed_run_keeps_its_own_model(tmp_path: Path) -> None:
    """Catches a run of the embedded model that becomes one of the published model once there is a key."""
    recorded = chz.asdict(make_config(RL, {"log_path": str(tmp_path)}))
    (tmp_path / "config.json").write_text(json.dumps({"recipe": "rl_basic", "config": recorded}))
    settled = settle(RL, {"flag": {"log_path": str(tmp_path), "behavior_if_log_dir_exists": "resume"}}, HOSTED)
    assert (settled.config.model_name, settled.config.batch_size) == ("cookhouse/tiny", 16)
    assert settled.origins["model_name"] == settled.origins["batch_size"] == "the run's own"
    assert defaults_taken(settled.config) is None


def test_every_built_in_recipe_has_a_published_model() -> None:
    """Catches one that would ask the hosted service for the embedded model."""
    for recipe in every_recipe():
        if issubclass(recipe.config_class, AdapterSettings):
            assert published_model_of(recipe.config_class), recipe.name


def test_what_is_no_config_is_refused() -> None:
    config: Any = RunSettings()
    with pytest.raises(InputError, match="a config of recipe rl_basic is a Config or a dict, not a RunSettings"):
        make_config(RL, config)


@pytest.mark.parametrize(("key", "value"), [("batch_size", 1.5), ("batch_size", [8]), ("force_renderer", "maybe")])
def test_a_value_of_the_wrong_type_is_named(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{key}=.* does not fit; {key} takes"):
        make_config(RL, {key: value})


@pytest.mark.parametrize(
    "recipe",
    [
        recipe.name
        for recipe in every_recipe()
        if "eval_every" in {field.name for field in config_fields(recipe)}
        and recipe.name != "preference_model"  # one evaluation is a fifth of its run
    ],
)
def test_the_embedded_defaults_evaluate_along_the_way(recipe: str) -> None:
    # Catches a first run without a curve of what is held out, and a published default that changes with it.
    config_class = find_recipe(recipe).config_class
    embedded, published = config_class(), config_class(model_name="meta-llama/Llama-3.1-8B")
    assert embedded.eval_every > 0
    assert published.eval_every in (0, 20)
