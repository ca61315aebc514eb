"""Another name of the recipe `supervised`."""

from cookhouse.recipes.program import become_command
from cookhouse.recipes.supervised import RECIPE

__all__ = ["RECIPE"]

if __name__ == "__main__":
    become_command(RECIPE)
