"""The base models that a server offers."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

from cookhouse.assets import TINY_MODEL
from cookhouse.engine.contract import BaseModelInfo
from cookhouse.errors import UnknownNameError
from cookhouse.models.catalog.retired import SUCCESSORS
from cookhouse.models.names import plain_name, published_name
from cookhouse.server.access.hosted_rules import RETIRED_MODEL, Breach

_MAX_NAME_CHARS = 200
"""Of a name that a line to type is told for."""


def is_offered(name: str, offered: Collection[str]) -> bool:
    """True if a client's name for a base model is of one that is offered by these names."""
    return name in offered or plain_name(name) in offered


class OfferedModels:
    """By the names that clients call them; what the engine calls one is in its info. Filled once they are loaded."""

    def __init__(self) -> None:
        self._infos: dict[str, BaseModelInfo] = {}
        self._started_as = ""

    def fill(
        self, infos: Sequence[BaseModelInfo], sources: Mapping[str, str] | None = None, started_as: str = ""
    ) -> None:
        """`sources` has the engine's name by the name to offer it under; without, both are the same. `started_as` has
        the words behind `cookhouse serve`, as a shell takes them.
        """
        self._started_as = started_as
        by_source = {info.name: info for info in infos}
        self._infos = by_source if sources is None else {name: by_source[one] for name, one in sources.items()}

    def __iter__(self) -> Iterator[BaseModelInfo]:
        return iter(self._infos.values())

    @property
    def names(self) -> Sequence[str]:
        """Names that clients may ask for, context suffixes aside."""
        return tuple(self._infos)

    def named(self, name: str) -> BaseModelInfo:
        """A base model, by a client's name for it.

        Raises:
            UnknownNameError: the server does not offer it.
        """
        info = self._infos.get(name) or self._infos.get(plain_name(name))
        if info is None:
            raise UnknownNameError("base model", name, self._infos, way_out=self._way_out(name))
        return info

    def _way_out(self, name: str) -> str:
        said = "a server offers what it was started with (cookhouse serve -m NAME, or -m NAME=FOLDER)"
        plain = published_name(name)
        if plain is None or len(plain) > _MAX_NAME_CHARS:
            return said
        model = plain if plain == TINY_MODEL else f"{plain}={TINY_MODEL}"
        line = f"cookhouse serve -m {shlex.quote(model)} {self._started_as}".rstrip()
        return f"{said}; with the embedded model in its place, offline: {line}"

    def breaches(self, name: str) -> Sequence[Breach]:
        """Rules of the hosted service that a new model or sampler of this base model breaks."""
        successor = SUCCESSORS.get(plain_name(name))
        return [] if successor is None else [RETIRED_MODEL.broken(model=name, successor=successor)]

    def are_same(self, name: str, other: str) -> bool:
        """True if two names are of one model. Raises `UnknownNameError` for one that is not offered."""
        return self.named(name) == self.named(other)
