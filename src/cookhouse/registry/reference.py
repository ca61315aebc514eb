"""References to a registered model: `name`, `name@version`, `name@stage`."""

import re
from dataclasses import dataclass

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.registry.model import ModelStage

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, kw_only=True)
class ModelReference:
    """A name taken apart. Neither version nor stage: the highest version."""

    name: str
    version: int | None = None
    stage: ModelStage | None = None


def check_name(name: str) -> None:
    """Refuse what cannot name a registered model. A name has no / and no @, so that it is no path and no reference."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a registered model; a name has letters, digits, '.', '_' and '-', 128 at most, and "
            "begins with a letter or a digit"
        )


def names_registered_model(text: str) -> bool:
    """True if a text has the form of `name@version` or `name@stage`, which neither a path nor a base model has."""
    name, at, which = text.rpartition("@")
    is_known = bool(_VERSION.fullmatch(which)) or which in set(ModelStage)
    return bool(at) and bool(_NAME.fullmatch(name)) and is_known


def parse_reference(text: str) -> ModelReference:
    """Parse a reference.

    Raises:
        InputError: it cannot name a registered model.
    """
    name, at, which = text.partition("@")
    check_name(name)
    if not at:
        return ModelReference(name=name)
    if _VERSION.fullmatch(which):
        return ModelReference(name=name, version=int(which))
    return ModelReference(name=name, stage=parse_stage(which))


def parse_stage(text: str) -> ModelStage:
    """A stage by its name. Raises `UnknownNameError`."""
    if text not in set(ModelStage):
        raise UnknownNameError("stage", text, ModelStage)
    return ModelStage(text)
