"""Names that other systems have for our settings and recipes: the one table of each."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cookhouse.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A foreign name, and the settings that it stands for."""

    name: str
    means: tuple[str, ...]
    """Settings; a recipe that lacks one of them does not know the alias."""
    beside: tuple[str, ...] = ()
    """Further settings that a recipe must have for the name to mean this there."""
    convert: Callable[[Any], Mapping[str, Any]] | None = None
    """From the alias's value to those of the settings; None: it is the value of the one setting."""
    doc: str = ""


def _clip_range(epsilon: Any) -> Mapping[str, Any]:
    try:
        width = float(epsilon)
    except (TypeError, ValueError) as error:
        raise InputError(f"clip_epsilon is {epsilon!r}; it must be a number between 0 and 1, such as 0.2") from error
    return {"clip_low": 1.0 - width, "clip_high": 1.0 + width}


ALIASES = (
    Alias(name="groups_per_batch", means=("batch_size",), doc="tinker-cookbook"),
    Alias(
        name="num_rollouts",
        means=("max_steps", "num_epochs"),
        beside=("group_size",),
        # As many epochs as steps are enough for as many steps, however few problems there are.
        convert=lambda steps: {"max_steps": steps, "num_epochs": steps},
        doc="TinkexCookbook: exactly so many steps, each of groups_per_batch groups",
    ),
    Alias(name="kl_penalty_coef", means=("kl_coef",), doc="tinker-cookbook"),
    Alias(name="kl_discount_factor", means=("kl_gamma",), doc="tinker-cookbook"),
    Alias(name="reference_model_name", means=("kl_reference",), doc="TinkexCookbook"),
    Alias(name="reference_model_name", means=("reference_model",), doc="tinker-cookbook"),
    Alias(name="beta", means=("dpo_beta",), doc="TRL"),
    Alias(name="loss_type", means=("pair_loss",), doc="TRL"),
    Alias(name="clip_epsilon", means=("clip_low", "clip_high"), convert=_clip_range, doc="1 - ε to 1 + ε"),
    Alias(name="rm_learning_rate", means=("preference_learning_rate",), doc="tinker-cookbook: of the reward model"),
    Alias(name="model_path", means=("weights",), doc="tinker-cookbook, of evaluations"),
    Alias(name="tasks", means=("inspect",), doc="tinker-cookbook, of evaluations"),
    Alias(name="base_model", means=("model_name",), doc="tinker-cookbook"),
    Alias(name="kl_penalty_coef", means=("teacher_kl_coef",), doc="tinker-cookbook, of a teacher"),
    Alias(name="kl_discount_factor", means=("teacher_kl_gamma",), doc="tinker-cookbook, of a teacher"),
    Alias(name="teacher_checkpoint", means=("teacher_model",), doc="tinker-cookbook"),
    Alias(name="model", means=("model_name",)),
    Alias(name="dataset", means=("dataset_path",)),
    Alias(name="epochs", means=("num_epochs",)),
    Alias(name="num_train_epochs", means=("num_epochs",), doc="TRL"),
    Alias(name="lr", means=("learning_rate",)),
    Alias(name="rank", means=("lora_rank",)),
)


ATOMS = ("env", "lr_schedule")
"""Settings that name things, whose names TinkexCookbook writes with a leading colon."""


def without_colons(setting: str, value: Any) -> Any:
    """The value of one of `ATOMS` as we write it, as `deepcoder` for `:deepcoder`; any other as it is."""
    if setting not in ATOMS or not isinstance(value, str):
        return value
    return ",".join(name.strip().removeprefix(":") for name in value.split(","))


MODULES: Mapping[str, str] = {
    "distillation.off_policy_reasoning": "off_policy_distillation",
    "distillation.on_policy_distillation": "on_policy_distillation",
    "distillation.on_policy_multi_teacher": "multi_teacher_distillation",
    "multiplayer_rl.guess_number": "textarena_rl",
    "multiplayer_rl.text_arena": "textarena_rl",
    "multiplayer_rl.twenty_questions": "twenty_questions",
    "preference": "dpo",
    "preference.dpo": "dpo",
    "preference.rlhf.rlhf_pipeline": "rlhf",
}
"""Our recipe, by what the module of tinker-cookbook's is called below `recipes`; those of one name are left out."""

_MODULE = re.compile(r"(tinker_cookbook\.|cookhouse\.)?recipes\.(?P<path>[\w.]+?)(\.train)?")


def recipe_of_module(name: str) -> str | None:
    """The recipe that goes by the path of a module, such as `recipes.chat_sl.train`; None: it is no such path. It is
    not said that there is a recipe of that name.
    """
    match = _MODULE.fullmatch(name)
    return MODULES.get(match["path"], match["path"]) if match else None


def aliases_of(settings: Mapping[str, Any]) -> Mapping[str, Alias]:
    """Those that a recipe with these settings understands, by name."""
    return {
        alias.name: alias
        for alias in ALIASES
        if alias.name not in settings and all(setting in settings for setting in (*alias.means, *alias.beside))
    }


def without_aliases(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by our names.

    Raises:
        InputError: a setting is given by two names, or an alias has a value that it cannot have.
    """
    known = aliases_of(settings)
    plain = {name: value for name, value in values.items() if name not in known}
    for name, value in values.items():
        if name not in known:
            continue
        alias = known[name]
        meant = {alias.means[0]: value} if alias.convert is None else alias.convert(value)
        for setting in meant:
            if setting in plain:
                raise InputError(f"{name} is another name of {setting}, which is given as well; give it once")
        plain |= meant
    return plain
