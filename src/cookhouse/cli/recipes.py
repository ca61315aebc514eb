"""`cookhouse recipes` and `cookhouse describe`: what can be run, and of what it consists."""

from typing import Annotated

import typer

from cookhouse.recipes import RECIPES, config_fields, find_recipe


def recipes() -> None:
    """List the recipes."""
    from rich.console import Console
    from rich.table import Table

    table = Table("recipe", "also", "what it does", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for recipe in RECIPES.values():
        table.add_row(recipe.name, ", ".join(recipe.aliases), recipe.description)
    Console(highlight=False).print(table)
    typer.echo("\nRun one:       cookhouse run supervised\nIts settings:  cookhouse run supervised --help")


def describe(recipe: Annotated[str, typer.Argument(help="Name of a recipe, such as supervised.")]) -> None:
    """Show a recipe's stages and settings."""
    chosen = find_recipe(recipe)
    typer.echo(f"{chosen.name}: {chosen.description}\n")
    stages = chosen.workflow
    typer.echo(f"one flat file, without stages: {chosen.file}" if stages is None else stages.describe())
    typer.echo("\nsettings")
    for field in config_fields(chosen):
        typer.echo(f"  {field.name} = {field.default}")
