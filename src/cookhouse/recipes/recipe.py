"""The recipe table: a name, a config class and a workflow for each. Reading it loads neither the SDK nor a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cookhouse.errors import UnknownNameError
from cookhouse.recipes import flat


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a user names to run: its config class and workflow are imported when they are first asked for."""

    name: str
    aliases: tuple[str, ...]
    description: str
    module: str
    """Holds `Config`, `resolve`, `workflow`, `execute` and `dry_run`, or what `cookhouse.recipes.flat` says. Importing
    it loads no SDK."""
    is_flat: bool = False
    """Whether it is one file to be read, with training written out in it: there are no stages."""

    @property
    def config_class(self) -> type[Any]:
        """A frozen chz class; every field has a default and a doc."""
        return import_module(self.module).Config  # type: ignore[no-any-return]

    @property
    def resolve(self) -> Callable[[Any], Any]:
        """Fills every default that depends on the model, and refuses settings that do not go together."""
        return import_module(self.module).resolve  # type: ignore[no-any-return]

    @property
    def workflow(self) -> Any:
        """The stages, as a `cookhouse.workflows.Workflow`; loads the SDK. None for a flat recipe."""
        return None if self.is_flat else import_module(self.module).workflow()

    @property
    def execute(self) -> Callable[..., Any]:
        """Runs a resolved config; `cookhouse.recipes.run` calls it."""
        module = import_module(self.module)
        return partial(flat.execute, self.name, module) if self.is_flat else module.execute

    @property
    def dry_run(self) -> Callable[[Any], Any]:
        """Looks at data, tokenizer and plan without a training request."""
        module = import_module(self.module)
        return partial(flat.dry_run, self.name, module) if self.is_flat else module.dry_run

    @property
    def file(self) -> Path:
        """Where its code is."""
        return Path(str(import_module(self.module).__file__))


_ALL = (
    Recipe(
        name="supervised",
        aliases=("sl_basic", "sl_basic_v2"),
        description="Fine-tune on conversations: the bundled ones, or a JSONL file of your own.",
        module="cookhouse.recipes.supervised",
    ),
    Recipe(
        name="rl_basic",
        aliases=(),
        description="Reinforcement learning on word problems: bundled arithmetic, or GSM8K.",
        module="cookhouse.recipes.rl_basic",
    ),
    Recipe(
        name="rl_loop",
        aliases=(),
        description="The same on arithmetic, as one flat file to read, copy and change.",
        module="cookhouse.recipes.rl_loop",
        is_flat=True,
    ),
    Recipe(
        name="math_rl",
        aliases=(),
        description="Reinforcement learning on mathematics: arithmetic, GSM8K, MATH, DeepMath or Polaris.",
        module="cookhouse.recipes.math_rl",
    ),
    Recipe(
        name="code_rl",
        aliases=(),
        description="Reinforcement learning on programs, rewarded by running their tests in a sandbox.",
        module="cookhouse.recipes.code_rl",
    ),
    Recipe(
        name="twenty_questions",
        aliases=(),
        description="Reinforcement learning by a game of questions that a second model answers.",
        module="cookhouse.recipes.twenty_questions",
    ),
    Recipe(
        name="self_play",
        aliases=(),
        description="Reinforcement learning by playing a game of two against itself.",
        module="cookhouse.recipes.self_play",
    ),
    Recipe(
        name="verifiers_rl",
        aliases=(),
        description="Reinforcement learning in any environment of the library verifiers.",
        module="cookhouse.recipes.verifiers_rl",
    ),
    Recipe(
        name="textarena_rl",
        aliases=(),
        description="Reinforcement learning in any game of the library textarena.",
        module="cookhouse.recipes.textarena_rl",
    ),
)

RECIPES: Mapping[str, Recipe] = MappingProxyType({recipe.name: recipe for recipe in _ALL})
"""Recipes by name, without their aliases."""


def find_recipe(name: str) -> Recipe:
    """The recipe of a name or alias, a leading colon ignored.

    Raises:
        UnknownNameError: no recipe has that name.
    """
    by_name = {known: recipe for recipe in _ALL for known in (recipe.name, *recipe.aliases)}
    plain = name.removeprefix(":")
    if plain not in by_name:
        raise UnknownNameError("recipe", name, by_name)
    return by_name[plain]
