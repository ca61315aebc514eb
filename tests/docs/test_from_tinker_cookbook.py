"""The page of names beside names: each row is true of the published tinker-cookbook and of ours."""

import ast
import importlib
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_reference import explained
from typer.core import TyperGroup
from typer.main import get_command

from cookhouse.cli.main import app
from cookhouse.recipes import aliases_of, config_fields, every_recipe, find_recipe, recipe_of_module

tinker_cookbook = pytest.importorskip("tinker_cookbook", reason="the published tinker-cookbook is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-tinker-cookbook.md"
THEIRS = Path(tinker_cookbook.__file__).parent
CONFIGS = ("supervised.train", "rl.train", "preference.train_dpo", "distillation.train_on_policy")
MANY = 4
"""Uses of an import in their recipes from which on the page has it."""


def rows(title: str) -> list[tuple[str, ...]]:
    """The cells of the table under a heading, but for its first two lines."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = next(part for part in section if part.startswith(f"{title}\n")).splitlines()
    table = [line for line in lines if line.startswith("|")][2:]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def ours(path: str) -> Any:
    """What a dotted name stands for. Raises `ImportError` or `AttributeError`."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            thing = getattr(thing, part)
        return thing
    raise ImportError(path)


def their_file(module: str) -> Path | None:
    path = THEIRS.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def their_source(module: str) -> ast.Module:
    """Read and not imported: some of theirs need packages that are not here."""
    file = their_file(module)
    assert file is not None, f"tinker_cookbook has no {module}"
    return ast.parse(file.read_text(encoding="utf-8"))


def defined(module: ast.Module) -> set[str]:
    """The names at the top of a module, imported ones too."""
    named = {getattr(node, "name", "") for node in module.body}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom | ast.Import):
            named |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named |= {target.id for target in targets if isinstance(target, ast.Name)}
    return named


@pytest.mark.parametrize(("module", "command"), [(names(row[0])[0], names(row[1])[0]) for row in rows("Commands")])
def test_a_command_of_theirs_has_ours(module: str, command: str) -> None:
    # Catches a program that upstream moved, or a recipe of ours that was renamed.
    assert their_file(module) is not None
    program, verb, *words = shlex.split(command)
    assert program == "cookhouse"
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert verb in group.commands
    if verb == "run":
        assert find_recipe(recipe_of_module(module) or "").name == find_recipe(words[0]).name


def their_fields() -> set[str]:
    classes = [node for module in CONFIGS for node in their_source(module).body if isinstance(node, ast.ClassDef)]
    fields = [line for each in classes if each.name == "Config" for line in each.body]
    return {line.target.id for line in fields if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)}


def test_every_field_of_their_configs_has_a_row() -> None:
    # Catches a field that a new version of theirs brings, and a row of one that is gone.
    assert {names(row[0])[0] for row in rows("Settings")} == their_fields()


def test_settings_beside_their_fields_are_settings_of_ours() -> None:
    settings = {field.name for recipe in every_recipe() for field in config_fields(recipe)}
    for theirs, here, note in rows("Settings"):
        assert set(names(here)) <= settings, theirs
        assert names(here) or note, f"{theirs} has neither a setting nor a reason"


def test_an_alias_of_ours_means_what_the_page_says() -> None:
    # Catches a page and a table of aliases that disagree.
    by_field = {names(theirs)[0]: names(here) + names(note) for theirs, here, note in rows("Settings")}
    for recipe in every_recipe():
        for name, alias in aliases_of(recipe.config_class).items():
            if name in by_field:
                assert set(alias.means) <= set(by_field[name]), (recipe.name, name)


def their_imports() -> Iterator[str]:
    """What their recipes import of the package, but for other recipes."""
    for path in THEIRS.joinpath("recipes").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tinker_cookbook"):
                module = (node.module or "").removeprefix("tinker_cookbook").lstrip(".")
                yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)


def test_every_import_that_their_programs_use_much_has_a_row() -> None:
    uses = Counter(name for name in their_imports() if not name.startswith("recipes"))
    shown = {names(row[0])[0] for row in rows("Imports")}
    assert {name for name, count in uses.items() if count >= MANY} - shown == set()
    assert len(uses) > 100


@pytest.mark.parametrize("row", rows("Imports"), ids=lambda row: names(row[0])[0])
def test_an_import_of_theirs_has_ours_or_a_reason(row: Sequence[str]) -> None:
    module, _, name = names(row[0])[0].rpartition(".")
    assert their_file(names(row[0])[0]) or name in defined(their_source(module))
    for path in names(row[1]):
        ours(path)
    assert names(row[1]) or row[2]


def test_metrics_beside_theirs_are_in_the_reference() -> None:
    # Catches a metric of ours that was renamed, and one of theirs that is no longer written.
    source = "\n".join(path.read_text(encoding="utf-8") for path in THEIRS.rglob("*.py"))
    for theirs, here in rows("Metrics"):
        assert explained().fullmatch(names(here)[0]), here
        last = re.sub(r"^(test|env)/(env/)?(all/)?", "", names(theirs)[0])
        assert last in source or last.rsplit("/", 1)[-1] in source, theirs
