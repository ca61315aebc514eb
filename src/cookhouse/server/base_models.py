"""The base models that a server offers."""

from collections.abc import Iterator, Sequence

from cookhouse.engine.contract import BaseModelInfo
from cookhouse.errors import UnknownNameError


class BaseModels:
    """By name; filled once the engine has loaded them."""

    def __init__(self) -> None:
        self._infos: dict[str, BaseModelInfo] = {}

    def fill(self, infos: Sequence[BaseModelInfo]) -> None:
        self._infos = {info.name: info for info in infos}

    def __iter__(self) -> Iterator[BaseModelInfo]:
        return iter(self._infos.values())

    def named(self, name: str) -> BaseModelInfo:
        """A base model.

        Raises:
            UnknownNameError: the server does not offer it.
        """
        if name not in self._infos:
            raise UnknownNameError("base model", name, self._infos)
        return self._infos[name]
