"""What a setting is stands at its field, and holds for whoever inherits the field."""

import json
import re
from pathlib import Path
from typing import Any

import chz
import pytest

from cookhouse.errors import InputError
from cookhouse.recipes import every_recipe, find_recipe, settle
from cookhouse.recipes.aliases import aliases_of, without_aliases
from cookhouse.recipes.run_sweep import RECIPE as SWEEP
from cookhouse.settings import (
    Alias,
    NamesWeights,
    ReinforcementSettings,
    SupervisedSettings,
    TrainingSettings,
    computed,
    default_in_words,
    facts,
    narrowed,
    read_if,
    redefault,
)
from cookhouse.settings.defaults import always
from cookhouse.settings.facts import free_on_resume, named_weights, of_launch, weights_settings

CRITIC = NamesWeights(several=True, port="completer", address="base_url")


@chz.chz
class Own(TrainingSettings):
    critic_model: str | None = chz.field(default=None, doc="", metadata=facts(weights=CRITIC, aliases=("critic",)))
    tracker: str = chz.field(default="", doc="", metadata=facts(free_on_resume=True))


@chz.chz
class Bare(Own):
    critic_model: str | None = "cookhouse/tiny-chat"
    tracker: str = "mine"
    save_every: int = 5


@chz.chz
class Redefined(Own):
    critic_model: str | None = redefault(Own, "critic_model", "a,b")
    tracker: str = narrowed(Own, "tracker", read_if(lambda _: False, "by others"))
    save_every: int = computed(always(5), int, "")


@pytest.mark.parametrize("config_class", [Own, Bare, Redefined])
def test_another_default_keeps_what_the_setting_is(config_class: type) -> None:
    # Catches a recipe that gives a setting its own default, and whose weights are then not resolved or served.
    assert weights_settings(config_class)["critic_model"] == CRITIC
    assert {"tracker", "save_every", "log_path"} <= free_on_resume(config_class)
    assert aliases_of(config_class)["critic"].means == ("critic_model",)


def test_a_resume_does_not_take_over_what_is_of_one_launch(tmp_path: Path) -> None:
    # Catches a paused run that, gone on with, pauses where it stands, for ever.
    recipe = find_recipe("supervised")
    assert of_launch(recipe.config_class) == {"pause_at_step", "pause_metric"}
    assert "pause_at_step" in free_on_resume(recipe.config_class)
    recorded = {"recipe": "supervised", "config": {"pause_at_step": 2, "max_steps": 9}}
    (tmp_path / "config.json").write_text(json.dumps(recorded))
    where = {"log_path": str(tmp_path), "behavior_if_log_dir_exists": "resume"}
    resumed = settle(recipe, {"given": where}).config
    assert (resumed.max_steps, resumed.pause_at_step) == (9, None)
    assert settle(recipe, {"given": {**where, "pause_at_step": 4}}).config.pause_at_step == 4


def test_a_class_that_says_it_anew_is_believed() -> None:
    @chz.chz
    class Other(Own):
        tracker: str = chz.field(default="", doc="", metadata=facts())

    assert "tracker" not in free_on_resume(Other)


def test_the_names_of_weights_are_told_one_by_one() -> None:
    config = Own(critic_model="a, b", load_checkpoint_path="runs/first")
    named = [(each.setting, each.name) for each in named_weights(config)]
    assert sorted(named) == [("critic_model", "a"), ("critic_model", "b"), ("load_checkpoint_path", "runs/first")]
    assert CRITIC.renamed("a, b", str.upper) == "A,B"
    assert NamesWeights().renamed("a, b", str.upper) == "A, B", "one name may hold a comma"


@pytest.mark.parametrize(
    ("known", "settings", "ports", "is_served"),
    [
        (NamesWeights(), {}, set(), True),
        (NamesWeights(), {"base_url": "http://x"}, {"completer", "teacher"}, True),
        (NamesWeights(port="completer"), {}, {"completer"}, False),
        (NamesWeights(port="completer"), {}, {"teacher"}, True),
        (NamesWeights(address="base_url"), {"base_url": "http://x"}, set(), False),
        (NamesWeights(address="base_url"), {}, set(), True),
        (NamesWeights(purpose="training"), {}, set(), False),
    ],
)
def test_a_base_model_is_served_unless_another_has_it(
    known: NamesWeights, settings: dict[str, Any], ports: set[str], is_served: bool
) -> None:
    assert known.is_base_model_served(TrainingSettings(**settings), ports) is is_served


RECIPES = [*every_recipe(), SWEEP]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: str(recipe.name))
def test_what_takes_weights_says_so(recipe: Any) -> None:
    """Catches a setting whose doc speaks of weights, and whose names are not resolved, pinned or served."""
    speaks = re.compile(r"tinker://|as in load_checkpoint_path|\b[Mm]odel (that answers|in the other seats)")
    fields = chz.chz_fields(recipe.config_class)
    spoken = {name for name, field in fields.items() if speaks.search(field._doc)}
    assert weights_settings(recipe.config_class).keys() == spoken


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: str(recipe.name))
def test_where_a_run_leaves_its_files_is_free_in_every_recipe(recipe: Any) -> None:
    """Catches a run that its own folder cannot be resumed in; and one that learns other things when resumed."""
    free = free_on_resume(recipe.config_class)
    assert {"log_path", "behavior_if_log_dir_exists", "sinks", "base_url", "registry"} <= free
    assert not {"model_name", "seed", "learning_rate", "batch_size", "dataset_path", "load_checkpoint_path"} & free


def test_a_name_of_two_settings_is_free_where_its_own_field_says_so() -> None:
    # Catches an evaluation that goes on with other numbers of answers, as a training run may show more samples.
    assert "num_samples" in free_on_resume(TrainingSettings)
    assert "num_samples" not in free_on_resume(find_recipe("eval").config_class)


@pytest.mark.parametrize("recipe", ["on_policy_distillation", "multi_teacher_distillation"])
def test_an_alias_of_two_settings_is_told(recipe: str, caplog: pytest.LogCaptureFixture) -> None:
    # Catches a penalty for leaving the reference that silently weighs the teacher instead.
    given = {"kl_penalty_coef": "0.5", "kl_discount_factor": "0.25"}
    config = settle(find_recipe(recipe), {"key=value": given}).config
    assert (config.teacher_kl_coef, config.teacher_kl_gamma) == (0.5, 0.25)
    assert (config.kl_coef, config.kl_gamma) == (0.0, 0.0)
    assert sorted(caplog.messages) == [
        "kl_discount_factor is read as teacher_kl_gamma, and not as kl_gamma, which has its own name",
        "kl_penalty_coef is read as teacher_kl_coef, and not as kl_coef, which has its own name",
    ]


def test_an_alias_of_one_setting_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert settle(find_recipe("rl"), {"key=value": {"kl_penalty_coef": "0.5"}}).config.kl_coef == 0.5
    assert caplog.messages == []


def test_an_alias_that_nobody_can_tell_is_refused() -> None:
    @chz.chz
    class Both(ReinforcementSettings):
        value_coef: float = chz.field(default=0.0, doc="", metadata=facts(aliases=(Alias(name="kl_penalty_coef"),)))

    assert "kl_penalty_coef" not in aliases_of(Both)
    with pytest.raises(InputError, match=r"kl_penalty_coef may mean .*value_coef.*; give the one that you mean"):
        without_aliases(Both, {"kl_penalty_coef": 0.5})


def test_a_name_of_groups_is_none_where_there_are_none() -> None:
    # Catches an alias that goes by the name of a setting, and not by what it is.
    assert "groups_per_batch" in aliases_of(ReinforcementSettings)
    assert "groups_per_batch" not in aliases_of(SupervisedSettings)
    assert default_in_words(SupervisedSettings, "batch_size") == "128"
