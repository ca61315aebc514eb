"""`python -m cookhouse.recipes.NAME key=value …` is `cookhouse run NAME key=value …`."""

import os
import sys
from typing import Any, NoReturn

from cookhouse.recipes.recipe import Recipe


def become_command(recipe: Recipe[Any]) -> NoReturn:
    """Go on as the command line, which stands above the recipes and is not imported by them."""
    become_run(recipe.name)


def become_run(recipe: str) -> NoReturn:
    """As `become_command`, of the recipe of a name."""
    os.execv(sys.executable, [sys.executable, "-m", "cookhouse", "run", recipe, *sys.argv[1:]])
