"""A registry in memory, for runs that make things up: deterministic, and all that it keeps is marked synthetic."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from cookhouse.registry.base import BaseRegistry, RegistryReader, RegistryWriter
from cookhouse.registry.model import ModelVersion, NewModel, StageChange


class NoopRegistry(BaseRegistry):
    """Gone with its process. Time is a count of what happened."""

    synthetic = True

    def __init__(self) -> None:
        self._kept = _Memory()
        self._turn = Lock()
        self._ticks = 0

    def now(self) -> float:
        self._ticks += 1
        return float(self._ticks)

    def register(self, new: NewModel) -> ModelVersion:
        return super().register(replace(new, is_synthetic=True))

    @contextmanager
    def reading(self) -> Iterator[RegistryReader]:
        with self._turn:
            yield self._kept

    @contextmanager
    def writing(self) -> Iterator[RegistryWriter]:
        with self._turn:
            changed = _Memory(dict(self._kept.by_id), dict(self._kept.last_number))
            yield changed
            self._kept = changed


class _Memory:
    def __init__(self, by_id: dict[str, ModelVersion] | None = None, last_number: dict[str, int] | None = None) -> None:
        self.by_id = by_id or {}
        self.last_number = last_number or {}

    def every(self, name: str | None = None) -> Sequence[ModelVersion]:
        return [version for version in self.by_id.values() if name in (None, version.name)]

    def add(self, new: NewModel, first: StageChange) -> ModelVersion:
        number = self.last_number.get(new.name, 0) + 1
        self.last_number[new.name] = number
        version = ModelVersion.of(new, number, first)
        self.by_id[version.id] = version
        return version

    def change(self, version: ModelVersion) -> None:
        self.by_id[version.id] = version

    def remove(self, version: ModelVersion) -> None:
        del self.by_id[version.id]
