"""The lineage of a registered model, drawn: its base model, what it came from, itself, and what came from it."""

from collections.abc import Mapping, Sequence

from rich.text import Text
from rich.tree import Tree

from cookhouse.errors import printable
from cookhouse.registry import ModelRegistry, ModelVersion, Query, ancestors, children_by_parent
from cookhouse.telemetry import find_metric


def lineage_tree(registry: ModelRegistry, version: ModelVersion) -> Tree:
    """A tree whose edges say how each came from the one above it."""
    line = [*reversed(ancestors(registry, version.id)), version]
    tree = here = Tree(Text(printable(line[0].base_model), style="dim"), guide_style="dim")
    if line[0].parent is not None:
        here = here.add(Text(f"{line[0].parent} (deleted)", style="dim"))
    for each in line:
        here = here.add(_label(each, is_shown=each is version))
    _add_children(here, version, children_by_parent(registry.find(Query())), {each.id for each in line})
    return tree


def headline(version: ModelVersion) -> str:
    """The most telling metric, with its value; nothing where none was given."""
    if version.headline is None:
        return ""
    metric = find_metric(version.headline)
    return printable(f"{metric.label} {metric.text(version.metrics[metric.name])}")


def _add_children(
    tree: Tree, version: ModelVersion, children: Mapping[str, Sequence[ModelVersion]], drawn: set[str]
) -> None:
    for child in children.get(version.id, ()):
        if child.id not in drawn:
            drawn.add(child.id)
            _add_children(tree.add(_label(child)), child, children, drawn)


def _label(version: ModelVersion, *, is_shown: bool = False) -> Text:
    label = Text(f"{version.descent}: ", style="dim")
    label.append(version.id, style="bold reverse" if is_shown else "bold")
    label.append(f"  {version.stage}", style="green" if version.stage == "production" else "")
    if shown := headline(version):
        label.append(f"  {shown}")
    if version.is_synthetic:
        label.append("  synthetic", style="red")
    if is_shown:
        label.append("  <- this one", style="dim")
    return label
