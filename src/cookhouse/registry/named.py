"""Registries by name: a file of the embedded one, or another."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeGuard

from cookhouse.errors import InputError
from cookhouse.naming import OpenSet, build
from cookhouse.registry.port import ModelRegistry

REGISTRY_VARIABLE = "COOKHOUSE_REGISTRY"
DEFAULT_REGISTRY = "runs/registry.db"
_FILE_ENDINGS = (".db", ".sqlite", ".sqlite3")

RegistryBuilder: TypeAlias = Callable[[], ModelRegistry]
"""Opens a registry."""

REGISTRIES: OpenSet[RegistryBuilder] = OpenSet(
    kind="registry",
    group="cookhouse.registries",
    builtin={
        "mlflow": "cookhouse.registry.mlflow:MlflowRegistry",
        "noop": "cookhouse.registry.noop:NoopRegistry",
    },
    check=lambda thing: thing if callable(thing) else None,
    wants="a registry is opened by a function of no arguments, or a class, that makes a ModelRegistry",
)


def open_registry(where: str | None, environ: Mapping[str, str]) -> ModelRegistry:
    """The registry of a file that ends in .db, .sqlite or .sqlite3, or of a name of `REGISTRIES`.

    None: the one in `COOKHOUSE_REGISTRY`, else runs/registry.db. A file that is not there is made by the first version.

    Raises:
        InputError: it cannot be opened, or is none.
    """
    name = where or environ.get(REGISTRY_VARIABLE) or DEFAULT_REGISTRY
    if name.endswith(_FILE_ENDINGS):
        from cookhouse.registry.sqlite import SqliteRegistry

        return SqliteRegistry(Path(name).expanduser())
    if "/" in name and ":" not in name and not name.endswith(".py"):
        raise InputError(f"{name!r} is no registry; name a file that ends in {', '.join(_FILE_ENDINGS)}, or mlflow")
    return build(REGISTRIES, name, _is_registry)


def _is_registry(thing: object) -> TypeGuard[ModelRegistry]:
    return isinstance(thing, ModelRegistry)
