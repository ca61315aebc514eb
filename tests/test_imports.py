"""How modules of the package may import one another, beyond the layers of pyproject.toml."""

from graphlib import TopologicalSorter
from importlib import import_module

import grimp
import pytest

_MAX_NAMES = 80


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Would catch two modules that can be read, tested and changed only together."""
    graph = grimp.build_graph("cookhouse")
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # CycleError names the modules


@pytest.mark.parametrize("package", ["data", "evals", "rl", "settings", "training"])
def test_a_package_offers_no_more_than_can_be_read(package: str) -> None:
    """Would catch names that one module needs of another being offered to everybody."""
    assert len(import_module(f"cookhouse.{package}").__all__) <= _MAX_NAMES
