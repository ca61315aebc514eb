"""Another name of the recipe `dpo`."""

from cookhouse.recipes.dpo import RECIPE
from cookhouse.recipes.program import become_command

__all__ = ["RECIPE"]

if __name__ == "__main__":
    become_command(RECIPE)
