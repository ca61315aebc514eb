"""Recipes: one file each, and the table of them. Importing this loads neither the SDK, torch nor transformers."""

from cookhouse.recipes.config import ConfigField, config_fields, parse_config
from cookhouse.recipes.recipe import RECIPES, Recipe, find_recipe
from cookhouse.recipes.run import dry_run, run

__all__ = ["RECIPES", "ConfigField", "Recipe", "config_fields", "dry_run", "find_recipe", "parse_config", "run"]
