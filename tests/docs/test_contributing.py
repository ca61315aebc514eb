"""What CONTRIBUTING.md names is there: catches a module that moved, and a walk that leads nowhere."""

import ast
import importlib.util
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cookhouse"
TEXT = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
WALKS = re.findall(r"- ([A-Z][^:]+): (`[^|]+?)[.](?= - | ## )", TEXT[TEXT.index("Five walks,") :])
PLACED = re.findall(r"`([A-Z_]+)`(?: \([^)]*\))?(?: or `[A-Z_]+` \([^)]*\))? in `([\w/]+\.py)`", TEXT)


def defines(module: Path, name: str) -> bool:
    pattern = rf"^(?:(?:async )?def |class )?{name}\b"
    return re.search(pattern, module.read_text(encoding="utf-8"), re.MULTILINE) is not None


def imports(module: Path, other: Path) -> bool:
    """Whether a module imports something that another one or a package has, also from a package above it."""
    parts = other.relative_to(SOURCE.parent).with_suffix("").parts
    above = {".".join(parts[:end]) for end in range(2, len(parts) + 1)}
    tree = ast.parse(module.read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imported if node.module in above for alias in node.names}
    faces = {
        alias.asname or alias.name
        for node in imported
        for alias in node.names
        if node.module == SOURCE.name and f"{SOURCE.name}.{alias.name}" in above
    }
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    # As in `alg.NAME`.
    names |= {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id in faces}
    return any(other.is_dir() or defines(other, name) for name in names)


def steps_of(walk: str) -> list[Path]:
    """The files and folders of a walk; one without a folder lies beside the step before it, or at the top."""
    steps: list[Path] = []
    for named in re.findall(r"`([\w/]+(?:\.py|/))`", walk):
        beside = [step.parent for step in steps[-1:]] if "/" not in named else []
        found = [folder / named for folder in (*beside, SOURCE) if (folder / named).exists()]
        assert found, f"{named} is not there"
        steps.append(found[0])
    return steps


def test_there_are_five_walks() -> None:
    assert len(WALKS) == 5


@pytest.mark.parametrize("walk", [walk for _, walk in WALKS], ids=[title for title, _ in WALKS])
def test_each_step_of_a_walk_imports_the_next(walk: str) -> None:
    for half in walk.split(";"):
        for step, following in pairwise(steps_of(half)):
            assert imports(step, following), f"{step} imports nothing of {following}"
    for module, name in re.findall(r"`([\w/]+\.py)` \(`(\w+)`\)", walk):
        assert defines(SOURCE / module, name)


@pytest.mark.parametrize(("table", "module"), PLACED)
def test_a_table_is_where_it_is_said_to_be(table: str, module: str) -> None:
    assert defines(SOURCE / module, table)


def test_files_and_folders_are_there() -> None:
    named = re.findall(r"`((?:[\w.]+/)+(?:\w+\.\w+)?)`", TEXT)
    places = [ROOT, SOURCE]
    missing = [name for name in named if "NAME" not in name and not any((place / name).exists() for place in places)]
    assert missing == []


def test_modules_are_there() -> None:
    # Catches `python -m` of a module that moved, and a name of a package that is gone.
    named = set(re.findall(r"`(?:python3? -m )?((?:cookhouse|tests|bench|scripts)(?:\.\w+)+)", TEXT))
    assert len(named) > 8
    assert [name for name in sorted(named) if importlib.util.find_spec(name) is None] == []


def test_every_room_is_on_the_map() -> None:
    # Catches a package that was added and that nobody finds.
    text = TEXT[TEXT.index("Both halves") : TEXT.index("An algorithm is")]
    rooms = {folder.parent.name for folder in SOURCE.glob("*/__init__.py")}
    assert sorted(room for room in rooms if f"`{room}`" not in text) == []
