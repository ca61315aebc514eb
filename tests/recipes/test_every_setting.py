"""Every setting of every recipe is read by something in a run, or refused where nothing reads it."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import chz
import pytest

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.recipes import Recipe, aliases_of, every_recipe, settle
from cookhouse.settings import ReinforcementSettings, RunSettings, SupervisedSettings, narrowed, read_if, redefault
from cookhouse.settings.reading import read_conditions
from cookhouse.telemetry import read_metrics
from cookhouse.testing import unread_settings
from cookhouse.workflows import supervised_workflow

SMALL = {
    "max_steps": 2,
    "batch_size": 2,
    "group_size": 2,
    "num_eval": 2,
    "num_samples": 1,
    "lora_rank": 4,
    "max_tokens": 8,
    "num_turns": 2,
    "save_every": 1,
    "limit": 2,
    "n_train_samples": 8,
}
LIBRARIES = {"verifiers_rl": "verifiers", "textarena_rl": "textarena"}
READ_ELSEWHERE = {
    "base_url": "the no-op service has no address",
    "service_patience_seconds": "nor does it fall silent",
    "registry": "nothing is registered",
    "sinks": "sinks get all settings as a mapping",
    "wandb_project": "as above",
    "headline": "run.json has it from the same mapping",
    "benchmark_data": "no benchmark is among the evaluators",
    "min_group_members": "no rollout fails",
    "on_failed_group": "as above",
    "rollout_attempts": "as above",
    "renderer_name": "an evaluation by the no-op completer renders nothing",
    "force_renderer": "as above",
}
"""Settings that a run on no-ops does not come to, each with its reason; that these arrive is tested elsewhere."""

RECIPES = every_recipe()
KNOWN = {name for recipe in RECIPES for name in chz.chz_fields(recipe.config_class)}
ALIASES = {name for recipe in RECIPES for name in aliases_of(recipe.config_class)}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: str(recipe.name))
def test_every_setting_is_read_or_refused(recipe: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a setting that a recipe inherits, accepts and records, and that changes nothing; and a step that writes
    more than a person reads.
    """
    if (library := LIBRARIES.get(recipe.name)) and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    names = chz.chz_fields(recipe.config_class).keys()
    small: dict[str, Any] = {name: value for name, value in SMALL.items() if name in names}
    if recipe.name == "preference_rl":
        small["preference_model"] = "cookhouse/tiny"
    assert unread_settings(recipe, {**small, "log_path": "run"}) - READ_ELSEWHERE.keys() == set()
    steps = [names_of_step(row) for path in Path("run").rglob("metrics.jsonl") for row in read_metrics(path)]
    assert steps
    assert max(map(len, steps)) <= MAX_METRICS


MAX_METRICS = 30
"""Of a training step, besides those of one environment among several."""


def names_of_step(row: dict[str, Any]) -> list[str]:
    """Of a row, without what no-ops mark as made up."""
    others = re.compile("step|.*synthetic.*|test/.*|(env/(?!all/)|teacher_kl/).*")
    return [name for name in row if not others.fullmatch(name)]


@chz.chz
class Wide(ReinforcementSettings):
    """Of a recipe that inherits far more than its workflow reads."""

    max_length: int = redefault(SupervisedSettings, "max_length", 64)


@chz.chz
class Narrower(Wide):
    advantage: str = narrowed(ReinforcementSettings, "advantage", read_if(lambda _: False, "by recipes of rewards"))


def test_what_an_own_recipe_does_not_read_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a recipe that takes `advantage=gae kl_coef=1`, and does nothing with them."""
    monkeypatch.chdir(tmp_path)

    def workflow(config: Wide) -> Any:
        names = (chz.chz_fields(SupervisedSettings).keys() & chz.chz_fields(Wide).keys()) - {"loss_fn"}
        return supervised_workflow(SupervisedSettings(**{name: getattr(config, name) for name in names}))

    small = {"max_steps": 1, "num_eval": 0, "num_samples": 0, "batch_size": 2}
    wide = Recipe(name="wide", description="", config_class=Wide, workflow=workflow)
    found = unread_settings(wide, {**small, "log_path": "wide"})
    assert {"advantage", "kl_coef", "group_size", "temperature"} <= found
    assert not {"learning_rate", "lora_rank", "max_length"} & found
    narrower = Recipe(name="narrower", description="", config_class=Narrower, workflow=workflow)
    assert unread_settings(narrower, {**small, "log_path": "narrower"}) == found - {"advantage"}
    with pytest.raises(InputError, match="advantage=gae would change nothing: it is read by recipes of rewards"):
        settle(narrower, {"key=value": {"advantage": "gae"}})
    assert "__getattribute__" not in vars(RunSettings)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: str(recipe.name))
def test_settings_of_others_are_refused(recipe: Any) -> None:
    """Catches `cookhouse run X nonsense_for_X=1` that runs, and changes nothing."""
    own = chz.chz_fields(recipe.config_class).keys()
    understood = aliases_of(recipe.config_class).keys()
    others = (KNOWN | ALIASES) - own - understood
    assert others
    for name in sorted(others):
        with pytest.raises(UnknownNameError, match=f"unknown setting of recipe {recipe.name} '{name}'; (did|allowed)"):
            settle(recipe, {"key=value": {name: "1"}})


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: str(recipe.name))
def test_what_the_defaults_do_not_read_is_refused_when_typed(recipe: Any) -> None:
    """Catches a setting that needs another one, and is accepted without it."""
    config = recipe.config_class()
    for name, field in chz.chz_fields(recipe.config_class).items():
        idle = [check for check in read_conditions(recipe.config_class, name) if not check.is_read(config)]
        for value in _texts(field.x_type) if idle else ():
            try:
                made = settle(recipe, {"key=value": {name: value}}).config
            except InputError:
                continue
            checks = read_conditions(recipe.config_class, name)
            assert all(check.is_read(made) or check.is_idle(made, name) for check in checks), (name, value)


def _texts(field_type: Any) -> list[str]:
    text = str(field_type)
    return (
        ["true", "false"] if "bool" in text else ["3"] if "int" in text else ["0.25"] if "float" in text else ["some"]
    )
