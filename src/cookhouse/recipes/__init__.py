"""Recipes: what a user runs by name, with settings that become a workflow."""

from cookhouse.recipes import module_paths
from cookhouse.recipes.aliases import aliases_of, recipe_of_module
from cookhouse.recipes.config import (
    TYPED,
    ConfigField,
    Settled,
    config_fields,
    make_config,
    read_config_file,
    settle,
)
from cookhouse.recipes.experiment import Experiment, read_experiment, write_experiment
from cookhouse.recipes.pipeline import pipeline_recipe
from cookhouse.recipes.recipe import RECIPES, Recipe, every_recipe, find_recipe
from cookhouse.recipes.reinforcement import (
    NamedEnvironmentSettings,
    named_environments,
    plain_renderer,
    problem_files,
)
from cookhouse.recipes.run_recipe import dry_run, run, run_async
from cookhouse.recipes.run_sweep import sweep

module_paths.install()

__all__ = [
    "RECIPES",
    "TYPED",
    "ConfigField",
    "Experiment",
    "NamedEnvironmentSettings",
    "Recipe",
    "Settled",
    "aliases_of",
    "config_fields",
    "dry_run",
    "every_recipe",
    "find_recipe",
    "make_config",
    "named_environments",
    "pipeline_recipe",
    "plain_renderer",
    "problem_files",
    "read_config_file",
    "read_experiment",
    "recipe_of_module",
    "run",
    "run_async",
    "settle",
    "sweep",
    "write_experiment",
]
