"""Lineage: what a version came from, and what came from it; over any registry."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cookhouse.errors import InputError
from cookhouse.registry.model import ModelVersion
from cookhouse.registry.query import Query

if TYPE_CHECKING:
    from cookhouse.registry.port import ModelRegistry


def ancestors(registry: "ModelRegistry", name: str) -> list[ModelVersion]:
    """Ancestors of a version, its parent first; as far back as versions are there. Raises as `get`."""
    version = registry.get(name)
    return _ancestors(version, _by_id(registry.find(Query())))


def descendants(registry: "ModelRegistry", name: str) -> list[ModelVersion]:
    """Descendants of a version, parents before children. Raises as `get`."""
    version = registry.get(name)
    by_parent = children_by_parent(registry.find(Query()))
    found: list[ModelVersion] = []
    waiting = [version]
    while waiting:
        for child in by_parent.get(waiting.pop(0).id, []):
            if child.id != version.id and child not in found:
                found.append(child)
                waiting.append(child)
    return found


def children_by_parent(versions: Iterable[ModelVersion]) -> dict[str, list[ModelVersion]]:
    """Versions by the `name@version` that they came from."""
    children: dict[str, list[ModelVersion]] = {}
    for version in versions:
        if version.parent is not None:
            children.setdefault(version.parent, []).append(version)
    return children


def check_no_cycle(version: ModelVersion, parent: ModelVersion, among: Sequence[ModelVersion]) -> None:
    """Refuse a parent that came from the version itself."""
    chain = [parent, *_ancestors(parent, _by_id(among))]
    if version.id in [each.id for each in chain]:
        way = " from ".join(each.id for each in chain[: [each.id for each in chain].index(version.id) + 1])
        raise InputError(f"{version.id} cannot come from {parent.id}: lineage would be a cycle ({way})")


def _ancestors(version: ModelVersion, by_id: Mapping[str, ModelVersion]) -> list[ModelVersion]:
    found: dict[str, ModelVersion] = {}
    here: ModelVersion | None = version
    while here is not None and here.parent is not None:
        if here.parent in found or here.parent == version.id:
            raise InputError(f"the lineage of {version.id} comes back to {here.parent}: mend it with another parent")
        here = by_id.get(here.parent)
        if here is not None:
            found[here.id] = here
    return list(found.values())


def _by_id(versions: Iterable[ModelVersion]) -> dict[str, ModelVersion]:
    return {version.id: version for version in versions}
