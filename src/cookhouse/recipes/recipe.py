"""Recipes, and the open set of them. Reading it loads neither the SDK nor a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError
from cookhouse.naming import OpenSet
from cookhouse.recipes.aliases import recipe_of_module, what_is_meant
from cookhouse.settings import RunSettings

if TYPE_CHECKING:
    from cookhouse.workflows import Workflow

C = TypeVar("C", bound=RunSettings)


def _no_parts(config: RunSettings) -> Sequence[RunSettings]:
    del config
    return ()


@checked
@dataclass(frozen=True, kw_only=True)
class Recipe(Generic[C]):
    """Recipe that a user names to run.

    Raises:
        InputError: the config class cannot hold settings.
    """

    name: str
    description: str
    config_class: type[C]
    """A chz class with a default and a doc for every field."""
    workflow: "Callable[[C], Workflow[Any]]"
    """The stages of a run with a config; this is where the SDK is loaded."""
    aliases: tuple[str, ...] = ()
    """What else it is called."""
    parts: Callable[[C], Sequence[RunSettings]] = _no_parts
    """Of runs that share the service of the whole: the config of each."""

    @property
    def default_config(self) -> C:
        """The settings where nobody sets any."""
        return self.config_class()

    @property
    def required_adapters(self) -> tuple[str, ...]:
        """Ports that have to be filled, as the stages of a run with the default settings say; see `PORTS` of
        `cookhouse.adapters`. A `service` is found by itself where none is given.
        """
        return tuple(sorted(self.workflow(self.default_config).needs))

    @property
    def optional_adapters(self) -> tuple[str, ...]:
        """Ports that are used where they are filled, as the same stages say."""
        return tuple(sorted(self.workflow(self.default_config).uses))

    def __post_init__(self) -> None:
        config = self.config_class
        # A class below a chz class that is none itself would lose the settings that it adds.
        is_declared = isinstance(config, type) and issubclass(config, RunSettings) and "__chz_fields__" in vars(config)
        if not is_declared:
            raise InputError(
                f"config_class of recipe {self.name} is {config!r}; it must be a class of cookhouse.RunSettings, such "
                "as cookhouse.SupervisedSettings, that is decorated with @chz.chz"
            )


_MODULES = {
    "supervised": ("supervised", "sl_basic", "sl_basic_v2", "sft", "finetune"),
    "chat_sl": ("chat_sl",),
    "sl_loop": ("sl_loop",),
    "dpo": ("dpo", "preference"),
    "preference_model": ("preference_model", "reward_model"),
    "preference_rl": ("preference_rl",),
    "rlhf": ("rlhf", "rlhf_pipeline"),
    "on_policy_distillation": ("on_policy_distillation",),
    "multi_teacher_distillation": ("multi_teacher_distillation", "on_policy_multi_teacher"),
    "off_policy_distillation": ("off_policy_distillation",),
    "prompt_distillation": ("prompt_distillation",),
    "rl": ("rl",),
    "rl_basic": ("rl_basic",),
    "rl_loop": ("rl_loop",),
    "math_rl": ("math_rl",),
    "code_rl": ("code_rl",),
    "twenty_questions": ("twenty_questions",),
    "self_play": ("self_play",),
    "verifiers_rl": ("verifiers_rl",),
    "textarena_rl": ("textarena_rl",),
    "eval": ("eval",),
}
"""Names by the module below this package whose RECIPE they stand for."""

RECIPES: OpenSet[Recipe[Any]] = OpenSet(
    kind="recipe",
    group="cookhouse.recipes",
    builtin={name: f"cookhouse.recipes.{module}:RECIPE" for module, names in _MODULES.items() for name in names},
    check=lambda thing: thing if isinstance(thing, Recipe) else None,
    wants="a recipe is an object of cookhouse.Recipe",
    likely=("supervised", "dpo", "rl", "prompt_distillation", "eval"),
    way_out="`cookhouse recipes` lists them",
)


def every_recipe() -> list[Recipe[Any]]:
    """The recipes that are built in, registered, or of installed packages; each once, whatever else it is called."""
    return list({recipe.name: recipe for recipe in map(RECIPES.find, RECIPES.names())}.values())


@checked
def find_recipe(name: str) -> Recipe[Any]:
    """The recipe of a name (a leading colon is ignored), `module:NAME` or `file.py:NAME`; or the one that stands for a
    module of tinker-cookbook, such as `recipes.chat_sl.train`. Raises as `OpenSet.find`; `InputError` of what is no
    recipe, as the name of an algorithm, with the command that is meant.
    """
    plain = name.removeprefix(":")
    meant = recipe_of_module(plain)
    if meant is not None and meant not in RECIPES.names():
        known = ", ".join(recipe.name for recipe in every_recipe())
        raise InputError(f"{plain} would be the recipe {meant!r}, which cookhouse has not; it has {known}")
    name = meant or plain
    hint = None if name in RECIPES.names() else what_is_meant(name)
    if hint is not None:
        raise InputError(f"{name} is no recipe; {hint}")
    return RECIPES.find(name)
