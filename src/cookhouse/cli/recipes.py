"""`cookhouse recipes` and `cookhouse describe`: what can be run, and of what it consists."""

from pathlib import Path
from typing import Annotated

import typer

from cookhouse.adapters import PORTS
from cookhouse.cli.options import layers_of
from cookhouse.recipes import aliases_of, config_fields, every_recipe, find_recipe, settle
from cookhouse.settings import defaults_taken


def _complete(incomplete: str) -> list[str]:
    return [recipe.name for recipe in every_recipe() if recipe.name.startswith(incomplete)]


def recipes() -> None:
    """List the recipes: the built-in ones, and those of installed packages."""
    from rich.console import Console
    from rich.table import Table

    table = Table("recipe", "also", "what it does", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for recipe in every_recipe():
        table.add_row(recipe.name, ", ".join(recipe.aliases), recipe.description)
    Console(highlight=False).print(table)
    typer.echo(
        "\nRun one:       cookhouse run supervised\nIts settings:  cookhouse run supervised --help\n"
        "Your own:      cookhouse run my_recipes.py:NAME"
    )


def describe(
    recipe: Annotated[
        str, typer.Argument(help="A recipe, such as supervised, or file.py:NAME.", autocompletion=_complete)
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings by name, as in batch_size=8.")
    ] = None,
    config: Annotated[
        list[Path] | None, typer.Option("--config", metavar="FILE", help="Settings from a YAML, TOML or JSON file.")
    ] = None,
) -> None:
    """Show a recipe's stages and its settings, each with its value and where that came from."""
    chosen = find_recipe(recipe)
    settled = settle(chosen, layers_of(settings or (), config or (), {}))
    typer.echo(f"{chosen.name}: {chosen.description}\n")
    workflow = chosen.workflow(settled.config)
    typer.echo(workflow.describe())
    typer.echo("\nadapters")
    for port in sorted(workflow.needs | workflow.uses):
        typer.echo(f"  {port:<11} {'required' if port in workflow.needs else 'optional'}: {PORTS[port].doc}")
    typer.echo("\nsettings")
    if (taken := defaults_taken(settled.config)) is not None:
        typer.echo(f"  defaults: {taken}")
    fields = config_fields(chosen)
    for field in fields:
        origin = settled.origins[field.name]
        source = origin if origin.endswith("default") else f"from {origin}"
        note = "" if origin == "default" else f"   ({source})"
        typer.echo(f"  {field.name} = {getattr(settled.config, field.name)}{note}")
    typer.echo("\nother names of settings")
    for alias in aliases_of(chosen.config_class).values():
        typer.echo(f"  {alias.name} is {' and '.join(alias.means)}")
