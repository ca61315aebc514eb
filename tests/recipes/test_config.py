"""Configs from files, dicts and other systems' names."""

from pathlib import Path
from typing import Any

import pytest

from cookhouse.errors import InputError
from cookhouse.recipes import ALIASES, config_fields, find_recipe, make_config, read_config_file, settle
from cookhouse.settings import RunSettings

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
    with pytest.raises(InputError, match=r"run\.yaml cannot be read"):
        read_config_file(tmp_path / "run.yaml")


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("!!python/object/apply:os.system ['true']\n")
    with pytest.raises(InputError, match="cannot be read as a config"):
        read_config_file(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"groups_per_batch": 4}, {"batch_size": 4}),
        ({"num_rollouts": "4"}, {"batch_size": 4}),
        ({"kl_penalty_coef": 0.1, "reference_model_name": "m"}, {"kl_coef": 0.1, "kl_reference": "m"}),
        ({"loss_fn": "ppo", "clip_epsilon": "0.25"}, {"loss_fn": "ppo", "clip_low": 0.75, "clip_high": 1.25}),
    ],
)
def test_names_of_other_systems_are_understood(given: dict[str, Any], meant: dict[str, Any]) -> None:
    assert make_config(RL, given) == make_config(RL, meant)


def test_a_setting_by_two_names_is_refused() -> None:
    with pytest.raises(InputError, match="groups_per_batch is another name of batch_size, which is given as well"):
        make_config(RL, {"groups_per_batch": 4, "batch_size": 8})


def test_no_alias_hides_a_setting() -> None:
    # Catches an alias that is a setting of some recipe: it would mean two things.
    for name in ("supervised", "rl", "code_rl", "twenty_questions"):
        settings = {field.name for field in config_fields(find_recipe(name))}
        assert not settings & {alias.name for alias in ALIASES}


def test_a_later_layer_overrides_and_is_named() -> None:
    settled = settle(RL, {"run.yaml": {"batch_size": 4, "seed": 1}, "flag": {"seed": "2"}})
    assert (settled.config.batch_size, settled.config.seed) == (4, 2)
    assert (settled.origins["batch_size"], settled.origins["seed"]) == ("run.yaml", "flag")


def test_what_is_no_config_is_refused() -> None:
    config: Any = RunSettings()
    with pytest.raises(InputError, match="a config of recipe rl_basic is a Config or a dict, not a RunSettings"):
        make_config(RL, config)


@pytest.mark.parametrize(("key", "value"), [("batch_size", 1.5), ("batch_size", [8]), ("force_renderer", "maybe")])
def test_a_value_of_the_wrong_type_is_named(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{key}=.* does not fit; {key} takes"):
        make_config(RL, {key: value})
