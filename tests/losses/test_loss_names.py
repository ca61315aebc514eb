"""What is known of a loss stands in its table: nobody else asks for a loss by name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import cookhouse
from cookhouse.losses.pair_losses import BUILT_IN_PAIR_LOSSES
from cookhouse.losses.policy_losses import POLICY_LOSSES

SOURCE = Path(cookhouse.__file__).parent
FACTS = {
    "losses/pair_losses.py",
    "losses/policy_losses.py",
    "engine/train/losses.py",
    "training/clients/fake_losses.py",
}
"""Facts of each kind, and the two that compute the second kind."""
TABLES = {*FACTS, "recipes/aliases.py"}
"""Also what people call algorithms, some as their loss."""
NAMES = {*BUILT_IN_PAIR_LOSSES, *POLICY_LOSSES}
ALSO_DEFAULTS = {"dpo", "ppo", "importance_sampling"}
"""Names of recipes, or what some recipe asks for where nobody says: these may stand, and not be compared with."""


def texts(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def named(tree: ast.Module) -> set[str]:
    """Names of losses that a module has as texts or compares with."""
    compared = {text for node in ast.walk(tree) if isinstance(node, ast.Compare) for text in texts(node)}
    return ({*texts(tree)} - ALSO_DEFAULTS | compared) & NAMES


def test_no_loss_is_asked_for_by_name_outside_the_tables() -> None:
    """Would catch a fact about a loss that whoever adds one has to find by searching."""
    modules = {str(path.relative_to(SOURCE)): path for path in SOURCE.rglob("*.py")}
    assert modules.keys() >= TABLES
    found = {name: named(ast.parse(path.read_text(encoding="utf-8"))) for name, path in modules.items()}
    assert {name: names for name, names in found.items() if names and name not in TABLES} == {}


def test_the_search_finds_what_it_looks_for() -> None:
    assert named(ast.parse('SUMS = ("simpo", "dpo")')) == {"simpo"}
    assert named(ast.parse('is_clipped = loss in ("dpo", "other") or loss == "ppo"')) == {"dpo", "ppo"}
    assert named(ast.parse('"""About gspo."""\ndefault = "ppo"')) == set()
