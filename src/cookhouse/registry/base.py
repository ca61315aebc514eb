"""The rules of a registry, over whatever keeps its versions: the same for every adapter."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.registry.lineage import check_no_cycle
from cookhouse.registry.model import Artifact, Descent, ModelStage, ModelVersion, NewModel, StageChange
from cookhouse.registry.query import Query
from cookhouse.registry.reference import ModelReference, check_name, parse_reference

_MAX_TEXT = 4096
_MAX_METRICS = 10_000


class RegistryReader(Protocol):
    """Content of a registry, to be read."""

    def every(self, name: str | None = None) -> Sequence[ModelVersion]:
        """All versions, or those of a name, in any order."""


class RegistryWriter(RegistryReader, Protocol):
    """Content of a registry, to be changed."""

    def add(self, new: NewModel, first: StageChange) -> ModelVersion:
        """Keep a version under the next number of its name."""

    def change(self, version: ModelVersion) -> None:
        """Keep another state of a version that is there."""

    def remove(self, version: ModelVersion) -> None:
        """Forget one; its number is not given again."""


class BaseRegistry(ABC):
    """A `ModelRegistry` over versions that a subclass keeps."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[RegistryReader]:
        """Open the present content for reading."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[RegistryWriter]:
        """Open the content for changes, which are made as a whole or not at all."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def register(self, new: NewModel) -> ModelVersion:
        _check(new)
        with self.writing() as versions:
            if new.parent is not None:
                parent = _named(versions, parse_reference(new.parent))
                new = replace(new, parent=parent.id, is_synthetic=new.is_synthetic or parent.is_synthetic)
            for other in versions.every(new.name):
                if _are_the_same(new, other):
                    raise InputError(
                        f"{new.artifact.path} is registered already, as {other.id}; promote that, or register other "
                        "weights"
                    )
            return versions.add(new, StageChange(stage=ModelStage.EXPERIMENT, at=self.now()))

    def get(self, name: str) -> ModelVersion:
        with self.reading() as versions:
            return _named(versions, parse_reference(name))

    def find(self, query: Query) -> Sequence[ModelVersion]:
        with self.reading() as versions:
            return query.answer(versions.every(query.name))

    def promote(self, name: str, stage: ModelStage) -> ModelVersion:
        with self.writing() as versions:
            version = _named(versions, parse_reference(name))
            if version.stage is stage:
                return version
            at = self.now()
            if stage is ModelStage.PRODUCTION:
                for other in versions.every(version.name):
                    if other.stage is ModelStage.PRODUCTION:
                        versions.change(_moved(other, ModelStage.ARCHIVED, at))
            promoted = _moved(version, stage, at)
            versions.change(promoted)
            return promoted

    def set_parent(self, name: str, parent: str | None, descent: Descent) -> ModelVersion:
        with self.writing() as versions:
            version = _named(versions, parse_reference(name))
            changed = replace(version, parent=None, descent=descent)
            if parent is not None:
                found = _named(versions, parse_reference(parent))
                check_no_cycle(version, found, versions.every())
                is_synthetic = version.is_synthetic or found.is_synthetic
                changed = replace(changed, parent=found.id, is_synthetic=is_synthetic)
            versions.change(changed)
            return changed

    def delete(self, name: str, *, force: bool = False) -> ModelVersion:
        with self.writing() as versions:
            version = _named(versions, parse_reference(name))
            children = Query(parent=version.id).answer(versions.every())
            if children and not force:
                raise InputError(
                    f"{', '.join(child.id for child in children)} came from {version.id}; delete that first, or force "
                    "it, and they keep its name alone"
                )
            versions.remove(version)
            return version


def _are_the_same(new: NewModel, other: ModelVersion) -> bool:
    """True if they are one and the same weights: a path that a service made up may be that of several runs."""
    are_of_two_runs = None not in (new.run_folder, other.run_folder) and new.run_folder != other.run_folder
    known = {new.artifact.sha256, other.artifact.sha256} - {None}
    return new.artifact.path == other.artifact.path and len(known) <= 1 and not are_of_two_runs


def _moved(version: ModelVersion, stage: ModelStage, at: float) -> ModelVersion:
    return replace(version, history=(*version.history, StageChange(stage=stage, at=at)))


def _named(versions: RegistryReader, reference: ModelReference) -> ModelVersion:
    found = sorted(versions.every(reference.name), key=lambda version: version.version)
    if not found:
        raise UnknownNameError("registered model", reference.name, {version.name for version in versions.every()})
    if reference.version is not None:
        there = {version.version: version for version in found}
        if reference.version not in there:
            meant = f"{reference.name}@{reference.version}"
            raise UnknownNameError("registered model", meant, [version.id for version in found])
        return there[reference.version]
    if reference.stage is not None:
        at_stage = [version for version in found if version.stage is reference.stage]
        if not at_stage:
            shown = ", ".join(f"{version.id} is in {version.stage}" for version in found[-5:])
            raise InputError(f"no version of {reference.name} is in {reference.stage}: {shown}; promote one")
        return max(at_stage, key=lambda version: (version.history[-1].at, version.version))
    return found[-1]


def _check(new: NewModel) -> None:
    """They come from outside, and are shown, searched and kept for years."""
    check_name(new.name)
    artifacts = [artifact for artifact in (new.artifact, new.sampler) if artifact is not None]
    for artifact in artifacts:
        _check_artifact(artifact)
    if not new.base_model:
        raise InputError(f"a version of {new.name} has no base model; say which one was trained")
    if new.run_folder is not None and not Path(new.run_folder).is_absolute():
        raise InputError(f"run directory {new.run_folder} of a version of {new.name} is no absolute path")
    texts = (new.base_model, new.recipe, new.run_folder, new.config_hash, *new.metrics)
    if any(len(text) > _MAX_TEXT for text in texts if text is not None):
        raise InputError(f"a text of a version of {new.name} has more than {_MAX_TEXT:,} characters")
    if len(new.metrics) > _MAX_METRICS:
        raise InputError(f"a version of {new.name} has {len(new.metrics):,} metrics; at most {_MAX_METRICS:,} are kept")
    for metric, value in new.metrics.items():
        if not math.isfinite(value):
            raise InputError(f"{metric} of a version of {new.name} is {value}; a metric is a finite number")
    if new.headline is not None and new.headline not in new.metrics:
        raise UnknownNameError("headline metric", new.headline, new.metrics)


def _check_artifact(artifact: Artifact) -> None:
    if not artifact.path or len(artifact.path) > _MAX_TEXT or not artifact.path.isprintable():
        raise InputError(f"{artifact.path[:80]!r} is no path of weights; give a tinker:// path, or a folder")
    folders = [] if "://" in artifact.path else [artifact.path]
    for folder in (*folders, *([] if artifact.files is None else [artifact.files])):
        if not Path(folder).is_absolute():
            raise InputError(f"folder {folder} of an artifact is no absolute path; `read_artifact` makes it one")
    if artifact.files is not None and artifact.sha256 is None:
        raise InputError(f"{artifact.path} has files without their sha256; give both, or no files")
