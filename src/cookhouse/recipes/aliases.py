"""Names that other systems have for our settings and recipes. Those of a setting stand at the setting."""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cookhouse.errors import InputError
from cookhouse.settings import Alias
from cookhouse.settings.facts import known_aliases

logger = logging.getLogger(__name__)

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

ALGORITHMS: Mapping[str, str] = {
    "grpo": "advantage=normalized reduction=mean loss_fn=ppo",
    "dr_grpo": "advantage=group_centered loss_fn=ppo",
    "rloo": "advantage=leave_one_out",
    "cispo": "advantage=normalized reduction=token_mean loss_fn=cispo",
    "gspo": "advantage=normalized reduction=mean loss_fn=gspo",
    "ppo": "loss_fn=ppo",
}
"""Settings of the recipe `rl`, by the name of the algorithm that they make."""

_MODULE = re.compile(r"(tinker_cookbook\.|cookhouse\.)?recipes\.(?P<path>[\w.]+?)(\.train)?")
_EVALUATION = re.compile(r"(tinker_cookbook\.|cookhouse\.)?eval\.run_inspect_evals")


def recipe_of_module(name: str) -> str | None:
    """The recipe that goes by the path of a module, such as `recipes.chat_sl.train`; None: it is no such path. It is
    not said that there is a recipe of that name.
    """
    if _EVALUATION.fullmatch(name):
        return "eval"
    match = _MODULE.fullmatch(name)
    return MODULES.get(match["path"], match["path"]) if match else None


def what_is_meant(name: str) -> str | None:
    """Hint on what to run instead of a recipe that does not exist, if that is known."""
    plain = name.lower().replace("-", "_")
    if plain == "train":
        return "run supervised to learn from conversations, dpo from preferences, rl from rewards"
    settings = ALGORITHMS.get(plain)
    if settings is None:
        return None
    return f"it is settings of rl: cookhouse run rl {settings} (more in docs/how-to/published-algorithms.md)"


def aliases_of(config_class: type) -> Mapping[str, Alias]:
    """Aliases that a recipe with these settings understands, by name."""
    meant = {name: _meant(some) for name, some in known_aliases(config_class).items()}
    return {name: alias for name, alias in meant.items() if alias is not None}


def _meant(some: Sequence[Alias]) -> Alias | None:
    """The one of several settings that an alias is for; None: it is ambiguous."""
    chosen = [alias for alias in some if all(other is alias or alias.over in other.means for other in some)]
    return chosen[0] if len(chosen) == 1 else None


def without_aliases(config_class: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by our names.

    Raises:
        InputError: a setting is given by two names, or an alias may mean two settings, or has a value that it cannot
            have.
    """
    known = known_aliases(config_class)
    plain = {name: value for name, value in values.items() if name not in known}
    for name, value in values.items():
        if name not in known:
            continue
        alias = _meant(known[name])
        if alias is None:
            choices = " or ".join(" and ".join(each.means) for each in known[name])
            raise InputError(f"{name} may mean {choices}; give the one that you mean by its own name")
        meant = {alias.means[0]: value} if alias.convert is None else alias.convert(value)
        for setting in meant:
            if setting in plain:
                raise InputError(f"{name} is another name of {setting}, which is given as well; give it once")
        plain |= meant
    return plain


def tell_choices(config_class: type, names: Collection[str]) -> None:
    """Say of aliases that might be taken for another setting which one they were taken for."""
    known = known_aliases(config_class)
    for name in names:
        alias = _meant(known[name]) if len(known.get(name, ())) > 1 else None
        if alias is not None:
            logger.warning("%s is read as %s, and not as %s, which has its own name", name, alias.means[0], alias.over)
