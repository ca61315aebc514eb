"""A setting that nothing reads is refused where somebody set it, and told where a recipe's default did."""

import json
import typing
from pathlib import Path
from typing import Any, Literal

import chz
import pytest

from cookhouse.errors import InputError
from cookhouse.recipes import dry_run, every_recipe, find_recipe, make_config, settle
from cookhouse.settings import (
    Default,
    ReadIf,
    ReinforcementSettings,
    computed,
    narrowed,
    read_if,
    redefault,
    unread_defaults,
)


@chz.chz
class Shouting:
    loud: bool = chz.field(default=False, doc="")
    marks: int = chz.field(default=1, doc="", validator=read_if(lambda config: config.loud, "with loud=true", idle=[0]))
    voice: str | None = chz.field(default=None, doc="", validator=read_if(lambda config: config.loud, "with loud=true"))
    pitch: int = computed(
        Default(lambda config: 2 if config.loud else 1, "2 or 1"), int, "", read_if(lambda c: c.loud, "with loud=true")
    )


@chz.chz
class Crowd(Shouting):
    marks: int = redefault(Shouting, "marks", 3)
    loud: bool = narrowed(Shouting, "loud", read_if(lambda _: False, "by smaller crowds"))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"marks": 1, "voice": None, "pitch": 1},
        {"marks": 0},
        {"loud": True, "marks": 5, "voice": "bass", "pitch": 9},
    ],
)
def test_what_is_read_or_asks_for_nothing_is_accepted(settings: dict[str, Any]) -> None:
    Shouting(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"marks": 2}, "marks=2 would change nothing: it is read with loud=true; leave it out"),
        ({"voice": "bass"}, "voice=bass would change nothing"),
        ({"pitch": 9}, "pitch=9 would change nothing"),
    ],
)
def test_what_nothing_reads_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Shouting(**settings)


def test_conditions_are_inherited_and_added_to() -> None:
    assert Crowd().marks == 3
    with pytest.raises(InputError, match="marks=1 would change nothing: it is read with loud=true"):
        Crowd(marks=1)
    with pytest.raises(InputError, match="loud=True would change nothing: it is read by smaller crowds"):
        Crowd(loud=True)


OTHER = "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("recipe", "settings", "name"),
    [
        ("rl", {"gamma": 0.9}, "gamma"),
        ("rl", {"gae_lambda": 0.9, "advantage": "normalized"}, "gae_lambda"),
        ("rl", {"gamma": 0.9, "advantage": "gae"}, "gamma"),
        ("code_rl", {"gamma": 0.9, "model_name": OTHER}, "gamma"),
        ("code_rl", {"gae_lambda": 0.9, "model_name": OTHER}, "gae_lambda"),
        ("rl", {"kl_gamma": 0.5}, "kl_gamma"),
        ("rl", {"kl_reference": OTHER}, "kl_reference"),
        ("rl", {"dro_beta": 0.5}, "dro_beta"),
        ("rl", {"clip_low": 0.8, "loss_fn": "dro"}, "clip_low"),
        ("rl", {"grader": "exact"}, "grader"),
        ("rl", {"env": "self_play", "dataset_path": "mine.jsonl"}, "dataset_path"),
        ("rl", {"env": "tulu3", "test_path": "mine.jsonl"}, "test_path"),
        ("rl", {"env": "prompts", "format_coef": 0.5}, "format_coef"),
        ("rl", {"env_weights": "2"}, "env_weights"),
        ("twenty_questions", {"answerer_renderer": "qwen3"}, "answerer_renderer"),
        ("twenty_questions", {"answerer_model": OTHER, "num_candidates": 8}, "num_candidates"),
        ("dpo", {"simpo_gamma": 2.0}, "simpo_gamma"),
        ("dpo", {"pair_loss": "ipo", "label_smoothing": 0.1}, "label_smoothing"),
        ("dpo", {"pair_loss": "simpo", "cache_reference": False}, "cache_reference"),
        ("dpo", {"preference_renderer": "qwen3"}, "preference_renderer"),
        ("preference_model", {"eval_max_tokens": 8}, "eval_max_tokens"),
        ("supervised", {"label_averaging": "micro"}, "label_averaging"),
        ("supervised", {"wandb_name": "one"}, "wandb_name"),
        ("supervised", {"wandb_name": "one", "sinks": "tensorboard"}, "wandb_name"),
        ("supervised", {"warmup_steps": 3}, "warmup_steps"),
        ("supervised", {"train_mlp": False, "load_checkpoint_path": "tinker://a"}, "train_mlp"),
        ("supervised", {"save_every": 0, "ttl_seconds": 3600}, "ttl_seconds"),
        ("supervised", {"rolling_ttl_seconds": 3600}, "rolling_ttl_seconds"),
        ("supervised", {"infrequent_eval_every": 5}, "infrequent_eval_every"),
        ("sl_loop", {"sweep": "1e-4,1e-2,3", "learning_rate": 1e-3}, "learning_rate"),
        ("supervised", {"benchmark_data": "nowhere.jsonl"}, "benchmark_data"),
        ("supervised", {"benchmark_data": "nowhere.jsonl", "evaluators": "gsm8k", "num_eval": 0}, "benchmark_data"),
        ("supervised", {"dataset_weights": "2"}, "dataset_weights"),
        ("supervised", {"dataset_path": "mine.jsonl", "dataset_weights": "2"}, "dataset_weights"),
        ("supervised", {"registry": "mine.db"}, "registry"),
        ("supervised", {"force_renderer": True}, "force_renderer"),
        ("supervised", {"on_bad_row": "skip"}, "on_bad_row"),
        ("supervised", {"behavior_if_log_dir_exists": "resume"}, "behavior_if_log_dir_exists"),
        ("rl", {"compute_kl": True, "kl_coef": 0.1}, "compute_kl"),
        ("off_policy_distillation", {"teacher_base_url": "http://a", "model_name": OTHER}, "teacher_base_url"),
        ("supervised", {"num_eval": 0, "eval_max_tokens": 8}, "eval_max_tokens"),
        ("supervised", {"num_eval": 0, "labels": "a,b"}, "labels"),
        ("dpo", {"num_eval": 0, "preference_model": "m"}, "preference_model"),
        ("dpo", {"num_eval": 0, "eval_max_tokens": 8}, "eval_max_tokens"),
        ("rl", {"num_eval": 0, "eval_temperature": 0.0}, "eval_temperature"),
        ("self_play", {"num_eval": 0, "opponent": "perfect"}, "opponent"),
        ("preference_rl", {"num_eval": 0, "rule": "exact"}, "rule"),
        *(
            (recipe, {name: 3}, name)
            for recipe in ("rl", "rl_basic", "math_rl", "code_rl", "preference_rl", "on_policy_distillation")
            for name in ("max_turns", "max_tool_calls")
        ),
        ("self_play", {"max_tool_calls": 3}, "max_tool_calls"),
        ("twenty_questions", {"max_tool_calls": 3}, "max_tool_calls"),
        ("rl", {"env": "self_play", "max_tool_calls": 3}, "max_tool_calls"),
        ("eval", {"openai_base_url": "http://127.0.0.1:1/v1", "force_renderer": True}, "force_renderer"),
    ],
)
def test_settings_of_recipes_are_refused_where_nothing_reads_them(
    recipe: str, settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(InputError, match=f"^{name}=.* would change nothing: it is read "):
        make_config(find_recipe(recipe), settings)


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("rl", {"gamma": 0.9, "advantage": "gae", "env": "twenty_questions"}),
        ("rl", {"gamma": 0.9, "advantage": "mine.py:advantages", "env": "mine.py:environment"}),
        ("rl", {"env": "mine.py:environment", "grader": "exact", "dataset_path": "x.jsonl", "format_coef": 0.5}),
        ("rl", {"env": "arithmetic,prompts", "format_coef": 0.5, "env_weights": "2,1"}),
        ("rl", {"kl_reference": OTHER, "compute_kl": True}),
        ("dpo", {"pair_loss": "mine.py:loss", "simpo_gamma": 2.0, "cache_reference": False}),
        ("supervised", {"wandb_name": "one", "wandb_project": "all"}),
        ("supervised", {"wandb_name": "one", "sinks": "mlflow"}),
        ("supervised", {"warmup_steps": 0}),
        ("supervised", {"warmup_steps": 3, "lr_schedule": "warmup_cosine"}),
        ("supervised", {"benchmark_data": "rows.jsonl", "infrequent_evaluators": "gsm8k"}),
        ("supervised", {"dataset_path": "a.jsonl,b.jsonl", "dataset_weights": "2,1", "on_bad_row": "skip"}),
        ("supervised", {"registry": "mine.db", "registered_model_name": "sums"}),
        ("supervised", {"force_renderer": True, "renderer_name": "qwen3"}),
        ("supervised", {"num_eval": 0, "evaluators": "mine.py:loss", "eval_max_tokens": 8}),
        ("supervised", {"log_path": "run", "behavior_if_log_dir_exists": "delete"}),
        ("eval", {"compare_with": '["sums@1"]', "registry": "mine.db", "model_name": "cookhouse/tiny"}),
        ("rl", {"compute_kl": True}),
        ("rl", {"env": "mine.py:environment", "max_turns": 3, "max_tool_calls": 2}),
        ("twenty_questions", {"max_turns": 2}),
        ("on_policy_distillation", {"num_eval": 0, "eval_teacher": False}),
    ],
)
def test_settings_of_recipes_are_accepted_where_something_may_read_them(
    recipe: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Catches a refusal of what code of a user's own may read."""
    own = "def environment(settings, open_sampler): ...\ndef loss(pairs, settings): ...\n"
    (tmp_path / "mine.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    make_config(find_recipe(recipe), settings)


def others(field_type: Any) -> list[Any]:
    """Some values of a setting's type."""
    if typing.get_origin(field_type) is Literal:
        return list(typing.get_args(field_type))
    known: dict[Any, list[Any]] = {bool: [False, True], int: [2, 9000], float: [0.25, 2.5], str: ["some"]}
    return known.get(field_type) or [value for part in typing.get_args(field_type) for value in others(part)]


@pytest.mark.parametrize("recipe", every_recipe(), ids=lambda recipe: str(recipe.name))
def test_another_value_is_refused_or_read(recipe: Any) -> None:
    """Catches a condition that a recipe's own default has lost on the way, and one that never holds."""
    config = recipe.config_class()
    for name, field in chz.chz_fields(config).items():
        conditions = [check for check in field._validator if isinstance(check, ReadIf)]
        if not any(not check.is_read(config) for check in conditions):
            continue
        found = [outcome(recipe.config_class, name, value) for value in others(field.x_type)]
        assert "would change nothing" in " ".join(found) or "it is read" in found, (name, found)


def outcome(config_class: Any, name: str, value: Any) -> str:
    """What becomes of a value: what it is refused with, or whether setting it made something read it."""
    try:
        made = config_class(**{name: value})
    except InputError as error:
        return str(error)
    checks = [check for check in chz.chz_fields(made)[name]._validator if isinstance(check, ReadIf)]
    return "it is not" if any(check.is_unread(made, name) for check in checks) else "it is read"


@pytest.mark.parametrize("recipe", every_recipe(), ids=lambda recipe: str(recipe.name))
@pytest.mark.parametrize("model_name", ["cookhouse/tiny", OTHER])
def test_a_config_written_down_is_read_again(recipe: Any, model_name: str) -> None:
    """Catches a run that cannot be resumed from its own config.json, where every default stands as a value."""
    config = make_config(recipe, {"model_name": model_name})
    written = json.loads(json.dumps(chz.asdict(config)))
    assert chz.asdict(make_config(recipe, written)) == chz.asdict(config)


def test_what_is_typed_is_refused_also_where_it_is_the_default() -> None:
    recipe = find_recipe("rl")
    for layer in ("key=value", "flag"):
        with pytest.raises(InputError, match=r"gamma=0\.99 would change nothing"):
            settle(recipe, {layer: {"gamma": "0.99"}})
    for layer in ("given", "run.yaml"):
        assert settle(recipe, {layer: {"gamma": "0.99"}}).config.gamma == 0.99
    assert settle(recipe, {"key=value": {"gamma": "0.99", "advantage": "gae", "env": "self_play"}}).config.gamma == 0.99
    assert settle(find_recipe("supervised"), {"flag": {"warmup_steps": "0"}}).config.warmup_steps == 0


def test_a_recipes_default_that_nothing_reads_is_told() -> None:
    published = make_config(find_recipe("code_rl"), {"model_name": OTHER})
    assert published.advantage == "gae"
    assert unread_defaults(published) == [
        "by default gamma=0.99, gae_lambda=0.95, which changes nothing here: it is read in episodes of several turns, "
        "and here each has one"
    ]
    assert unread_defaults(ReinforcementSettings()) == [], "what is everybody's default is no news"
    plan = dry_run("chat_sl", {"max_steps": 1, "num_eval": 0})
    assert any("infrequent_eval_every=100, which changes nothing" in note for note in plan.notes)
    evaluated = dry_run("chat_sl", {"max_steps": 1, "num_eval": 0, "infrequent_evaluators": "arithmetic"})
    assert not any("infrequent_eval_every" in note for note in evaluated.notes)


def test_a_condition_asks_only_settings_that_its_spec_has() -> None:
    """Catches a spec that cannot be made by itself, as components are tested with it."""
    for recipe in every_recipe():
        for spec in recipe.config_class.__mro__:
            if spec.__module__.startswith("cookhouse.settings") and chz.is_chz(spec):
                made = spec()
                for name, field in chz.chz_fields(spec).items():
                    for check in field._validator:
                        if isinstance(check, ReadIf):
                            check.is_unread(made, name)
