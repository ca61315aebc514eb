"""`python -m` of the paths that recipes have as modules in other projects, such as
`cookhouse.recipes.preference.train`.
"""

import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_loader
from types import ModuleType

from cookhouse.recipes.aliases import MODULES, recipe_of_module
from cookhouse.recipes.recipe import RECIPES

_PREFIX = "cookhouse.recipes."


class _OwnModule(SourceFileLoader):
    """Of a module that is there: it may have others below it, although it is a file."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if not hasattr(module, "__path__"):
            module.__path__ = []


class _Path(InspectLoader):
    """Of a module that is a path alone; run as a program, it becomes the command of its recipe."""

    def __init__(self, recipe: str | None) -> None:
        self._recipe = recipe

    def get_source(self, fullname: str) -> str:
        del fullname
        source = "__path__ = []\n"
        if self._recipe is None:
            return source
        become = f"from cookhouse.recipes.program import become_run; become_run({self._recipe!r})"
        return f"{source}if __name__ == '__main__':\n    {become}\n"


class _Finder(MetaPathFinder):
    """Finds what is there; and else what `recipe_of_module` knows, and what such a path goes through."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PREFIX):
            return None
        found = PathFinder.find_spec(fullname, path, target) if path else None
        if found is not None:
            if isinstance(found.loader, SourceFileLoader) and found.submodule_search_locations is None:
                found.loader = _OwnModule(found.loader.name, found.loader.path)
            return found
        below = fullname.removeprefix(_PREFIX)
        recipe = recipe_of_module(fullname)
        if recipe is not None and (below.removesuffix(".train") in MODULES or recipe in RECIPES.names()):
            return spec_from_loader(fullname, _Path(recipe))
        is_between = any(known.startswith(f"{below}.") for known in MODULES)
        return spec_from_loader(fullname, _Path(None)) if is_between else None


def install() -> None:
    """Find these paths from now on in this process; once is enough."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
