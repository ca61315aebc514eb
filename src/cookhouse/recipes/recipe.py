"""The recipe table: a name, a config class and a workflow for each. Reading it loads neither the SDK nor a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from cookhouse.errors import UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a user names to run: its config class and workflow are imported when they are first asked for."""

    name: str
    aliases: tuple[str, ...]
    description: str
    module: str
    """Holds `Config`, `resolve`, `workflow`, `execute` and `dry_run`; importing it loads no SDK."""

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
        """The stages, as a `cookhouse.workflows.Workflow`; loads the SDK."""
        return import_module(self.module).workflow()

    @property
    def execute(self) -> Callable[..., Any]:
        """Runs a resolved config; `cookhouse.recipes.run` calls it."""
        return import_module(self.module).execute  # type: ignore[no-any-return]

    @property
    def dry_run(self) -> Callable[[Any], Any]:
        """Looks at data, tokenizer and plan without a training request."""
        return import_module(self.module).dry_run  # type: ignore[no-any-return]


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
