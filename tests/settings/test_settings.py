"""A config is made of specs: checked where a setting is declared, with defaults that hang on the model."""

from typing import Any

import chz
import pytest

from cookhouse.algorithms.base.facts import settings_notes
from cookhouse.errors import InputError
from cookhouse.models.hyperparams import get_lr
from cookhouse.recipes import every_recipe
from cookhouse.settings import (
    EnvironmentSettings,
    LossSettings,
    OptimizerSettings,
    PreferenceSettings,
    ReinforcementSettings,
    SupervisedSettings,
    by_model,
    default_in_words,
    part_of,
    redefault,
)


@chz.chz
class Config(ReinforcementSettings):
    batch_size: int = redefault(ReinforcementSettings, "batch_size", by_model(embedded=16, published=128))
    max_steps: int | None = redefault(ReinforcementSettings, "max_steps", by_model(embedded=30, published=None))


def test_a_default_hangs_on_the_model_and_what_is_set_wins() -> None:
    assert (Config().batch_size, Config().max_steps) == (16, 30)
    assert (Config(model_name="Qwen/Qwen3-8B").batch_size, Config(model_name="Qwen/Qwen3-8B").max_steps) == (128, None)
    assert Config(batch_size=4).batch_size == 4
    assert Config(batch_size=4, model_name="Qwen/Qwen3-8B").batch_size == 4


def test_a_computed_default_follows_a_later_change_of_model() -> None:
    """Catches a default that is computed once, and kept when the model is replaced."""
    assert chz.replace(Config(), model_name="Qwen/Qwen3-8B").batch_size == 128


def test_a_redefined_field_keeps_its_doc_and_its_checks() -> None:
    assert chz.chz_fields(Config)["batch_size"]._doc == "Groups per step."
    with pytest.raises(InputError, match="batch_size is 0; it must be at least 1"):
        Config(batch_size=0)


@chz.chz
class OtherRate(SupervisedSettings):
    learning_rate: float = redefault(SupervisedSettings, "learning_rate", by_model(embedded=5e-3, published=1e-4))


@chz.chz
class PlainRate(SupervisedSettings):
    learning_rate: float = redefault(SupervisedSettings, "learning_rate", 7e-4)


@pytest.mark.parametrize("config_class", [SupervisedSettings, ReinforcementSettings, OtherRate, PlainRate])
def test_auto_is_a_learning_rate_by_the_model_and_what_is_trained_of_it(config_class: Any) -> None:
    """Would catch a recipe with a default of its own that no longer takes auto."""
    auto = config_class(model_name="Qwen/Qwen3-8B", learning_rate="auto", renderer_name="qwen3")
    assert auto.learning_rate == get_lr("Qwen/Qwen3-8B")
    assert chz.replace(auto, lora_rank=0).learning_rate == get_lr("Qwen/Qwen3-8B", is_lora=False)
    assert chz.replace(auto, model_name="meta-llama/Llama-3.1-8B").learning_rate == get_lr("meta-llama/Llama-3.1-8B")
    assert config_class(learning_rate=3e-4).learning_rate == 3e-4


def test_a_default_rate_stays_what_it_was() -> None:
    rates = (SupervisedSettings().learning_rate, OtherRate().learning_rate, PlainRate().learning_rate)
    assert rates == (2e-4, 5e-3, 7e-4)
    assert default_in_words(PlainRate, "learning_rate") == "0.0007"
    with pytest.raises(InputError, match="learning_rate is -1"):
        OtherRate(learning_rate=-1)


def test_auto_is_the_recipes_own_default_where_nobody_has_published_a_rule() -> None:
    """Would catch auto that is refused, or that is the default of the recipe's parent."""
    auto: Any = OtherRate
    assert auto(model_name="openai/gpt-oss-20b", learning_rate="auto", renderer_name="role_colon").learning_rate == 1e-4
    plain: Any = PlainRate
    assert (
        plain(model_name="openai/gpt-oss-20b", learning_rate="auto", renderer_name="role_colon").learning_rate == 7e-4
    )


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("Qwen/Qwen3-8B", "learning_rate=auto is 0.000473, by the rule for qwen3 of width 4,096"),
        (
            "openai/gpt-oss-20b",
            "learning_rate=auto is 0.0001, the recipe's default: there is no published rule for the learning rate of "
            "'openai/gpt-oss-20b' (family gpt-oss; there is one for llama, qwen2.5, qwen3, qwen3-vl, qwen3.5)",
        ),
    ],
)
def test_a_run_says_where_its_automatic_rate_comes_from(model: str, said: str) -> None:
    auto: Any = OtherRate
    assert said in settings_notes(auto(model_name=model, learning_rate="auto", renderer_name="role_colon"))
    assert not [
        note for note in settings_notes(auto(model_name=model, renderer_name="role_colon")) if "auto is" in note
    ]


def test_defaults_in_words() -> None:
    assert default_in_words(Config, "batch_size") == "16 for cookhouse/tiny, else 128 (published)"
    assert default_in_words(Config, "max_steps") == "30 for cookhouse/tiny, else none (published)"
    assert default_in_words(Config, "lora_rank") == "32"
    assert default_in_words(Config, "log_path") is None


def test_a_part_has_the_settings_of_its_names() -> None:
    config = Config(seed=7, group_size=3)
    part = part_of(EnvironmentSettings, config)
    assert type(part) is EnvironmentSettings
    assert (part.seed, part.group_size, part.batch_size) == (7, 3, 16)


def test_a_config_is_each_of_its_specs() -> None:
    """What components take: nothing is copied on the way to them."""
    assert issubclass(SupervisedSettings, OptimizerSettings)
    assert issubclass(ReinforcementSettings, LossSettings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": float("nan")}, "learning_rate is nan; it must be a number above 0"),
        ({"lr_schedule": "line"}, "unknown lr_schedule 'line'; did you mean linear"),
        ({"gamma": 1.5}, "gamma is 1.5; it must be a number between 0 and 1"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be a number above 0"),
        ({"num_minibatches": 5, "num_substeps": 4}, "is more than batch_size=16"),
        ({"num_minibatches": 2, "max_steps_off_policy": 1}, "set only one of the two"),
        ({"group_size": 1}, "group_size is 1; a rollout is compared"),
        ({"group_size": 2, "min_group_members": 3}, "more than group_size=2"),
        ({"clip_low": 0.8, "loss_fn": "importance_sampling"}, "clip_low=0.8 would change nothing"),
        ({"loss_fn": "ppo", "clip_low": 1.2, "clip_high": 0.8}, "must be below clip_high"),
        ({"dro_beta": 1.0}, "dro_beta=1.0 would change nothing"),
        ({"kl_gamma": 0.5}, "it is read with kl_coef above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Config(**settings)


@pytest.mark.parametrize("recipe", every_recipe(), ids=lambda recipe: str(recipe.name))
def test_a_config_makes_the_checks_of_every_spec_that_it_is_made_of(recipe: Any) -> None:
    """Catches a spec whose checks go where another one comes first."""
    specs = recipe.config_class.__mro__
    declared = {check for spec in specs for check in vars(spec).get("__chz_validators__", [])}
    assert set(getattr(recipe.config_class, "__chz_validators__", [])) == declared


@pytest.mark.parametrize("pair_loss", ["ipo", "kto"])
def test_smoothing_is_refused_by_losses_that_have_no_place_for_it(pair_loss: str) -> None:
    with pytest.raises(InputError, match=r"label_smoothing=0\.1 would change nothing"):
        PreferenceSettings(pair_loss=pair_loss, label_smoothing=0.1)


@chz.chz
class _EvenBatch:
    @chz.validate
    def _batch_is_even(self) -> None:
        if self.batch_size % 2:  # type: ignore[attr-defined]
            raise InputError("batch_size is odd")


@chz.chz
class _EvenPairs(_EvenBatch, PreferenceSettings):
    pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 3}, "batch_size is odd"),
        ({"pair_loss": "ipo", "label_smoothing": 0.1}, "label_smoothing=0.1 would change nothing"),
        ({"train_mlp": False, "train_attn": False, "train_unembed": False}, "at least one must be true"),
    ],
)
def test_a_check_of_ones_own_takes_the_place_of_none(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _EvenPairs(**settings)


def test_the_services_names_of_options_are_used_where_it_is_asked() -> None:
    config = Config(loss_fn="ppo", clip_low=0.7, clip_high=1.3)
    assert config.loss_fn_config == {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3}
    assert Config().loss_fn_config == {}
