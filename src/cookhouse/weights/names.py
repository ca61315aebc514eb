"""Names of weights, the same wherever a user is asked for some.

tinker://...     the path itself, of whichever run
runs/first       the folder of a run, meaning its best checkpoint where it keeps that (keep_best), else its last
./adapter        a PEFT folder, which the local engine takes; or an embedded adapter, cookhouse/tiny-arithmetic
sums@production  a registered model, by its version or its stage
Qwen/Qwen3-8B    anything else: a base model

The first that fits counts: a run's folder that holds an adapter too is the run. The number of a run, or the beginning
of its name, becomes its folder before: `cookhouse.runs.listing`.
"""

import json
import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cookhouse.assets import ADAPTER_FOLDERS, ADAPTER_RENDERER
from cookhouse.errors import InputError
from cookhouse.files import is_folder
from cookhouse.models.names import published_name
from cookhouse.registry import (
    ModelRegistry,
    ModelVersion,
    Query,
    check_artifact,
    names_registered_model,
    open_registry,
)
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE, Checkpoint, CheckpointFile, named_by_run
from cookhouse.weights.peft_folders import adapted_model, is_peft_folder, peft_path

Purpose: TypeAlias = Literal["training", "sampling"]

_TINKER = "tinker://"
_RUN_FILES = (CHECKPOINTS_FILE, "run.json")
_CONFIG = "config.json"
_MAX_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Origin of weights, as far as files on this machine show it."""

    base_model: str | None = None
    renderer_name: str | None = None
    """Of the run that trained them."""


@dataclass(frozen=True)
class Weights(ABC):
    """Meaning of a name of weights."""

    name: str

    @abstractmethod
    def path(self, purpose: Purpose, /) -> str:
        """The `tinker://` path to train on from, or to sample from.

        Raises:
            InputError: there is none: nothing is saved for this purpose yet, or what is registered is gone or changed.
        """

    def place(self, purpose: Purpose, /) -> Mapping[str, str]:
        """A `model_path` or a `base_model`, as the SDK's calls take them. Raises as `path`."""
        return {"model_path": self.path(purpose)}

    def saved_by(self, _among: Iterable[Path], /) -> Path | None:
        """The folder of the run that saved them, in one of the folders in which to look; None: no such run is there, or
        its files cannot be read.
        """
        return None

    def origin(self, among: Iterable[Path], /) -> Origin:
        """Origin of the weights; runs are looked for in the folders `among`."""
        run = self.saved_by(among)
        return Origin() if run is None else _origin_of_run(run)

    def registered(self, registry: ModelRegistry) -> ModelVersion | None:
        """The registered model whose weights these are; None: they are not registered. Raises as `path`."""
        found = registry.find(Query(artifact_path=self.path("training")))
        return found[-1] if found else None


class CheckpointPath(Weights):
    """A `tinker://` path."""

    def path(self, _: Purpose, /) -> str:
        return self.name

    def saved_by(self, among: Iterable[Path], /) -> Path | None:
        return next((run for run in _runs(among) if self.name in _paths(run)), None)


class RunWeights(Weights):
    """The best checkpoint of a run that keeps it, else the last one; named by the folder."""

    def path(self, purpose: Purpose, /) -> str:
        checkpoints = named_by_run(_saved(Path(self.name)))
        if purpose == "training":
            paths = [saved.state_path or saved.sampler_path for saved in checkpoints]
        else:  # a run that was interrupted has states alone, which can be sampled from as well
            paths = [*(saved.sampler_path for saved in checkpoints), *(saved.state_path for saved in checkpoints)]
        found = next((path for path in paths if path is not None), None)
        if found is None:
            raise no_checkpoint(Path(self.name))
        return found

    def saved_by(self, _among: Iterable[Path], /) -> Path | None:
        return Path(self.name)


@dataclass(frozen=True)
class PeftWeights(Weights):
    """A PEFT folder, or an embedded adapter."""

    folder: Path

    def path(self, _: Purpose, /) -> str:
        return peft_path(self.folder)

    def origin(self, _among: Iterable[Path], /) -> Origin:
        is_ours = self.name in ADAPTER_FOLDERS
        return Origin(base_model=adapted_model(self.folder), renderer_name=ADAPTER_RENDERER if is_ours else None)


@dataclass(frozen=True)
class RegisteredWeights(Weights):
    """A registered model, which is looked up when something is asked of it."""

    registry: ModelRegistry | None

    def in_registry(self, name: str | None) -> "RegisteredWeights":
        """In the registry of this name, which is opened. Raises as `open_registry`."""
        return replace(self, registry=open_registry(name, os.environ))

    @cached_property
    def version(self) -> ModelVersion:
        """Raises `InputError` if there is no registry, or it has no such model."""
        if self.registry is None:
            raise _names_none(self.name)
        return self.registry.get(self.name)

    def path(self, purpose: Purpose, /) -> str:
        version = self.version
        artifact = version.artifact if purpose == "training" else version.weights_to_sample
        check_artifact(version, artifact)
        if not is_checkpoint_path(artifact.path):
            raise InputError(
                f"the weights of {version.id} are the folder {artifact.path}, which no service has; `cookhouse "
                f"checkpoints import` makes a {_TINKER} path of it, to be registered instead"
            )
        return artifact.path

    def saved_by(self, among: Iterable[Path], /) -> Path | None:
        if self.registry is None:
            return None
        run = self.version.run_folder
        if run is not None and _is_run(Path(run)):
            return Path(run)
        return find_weights(self.version.weights_to_sample.path).saved_by(among)

    def origin(self, among: Iterable[Path], /) -> Origin:
        if self.registry is None:
            return Origin()
        return Origin(base_model=self.version.base_model, renderer_name=super().origin(among).renderer_name)

    def registered(self, registry: ModelRegistry) -> ModelVersion | None:
        return registry.get(self.name)


class BaseModelWeights(Weights):
    """A base model, as it is before anything is trained; or a name that only a list of runs can tell."""

    @property
    def is_folder(self) -> bool:
        return is_folder(Path(self.name))

    @property
    def may_name_run(self) -> bool:
        """By its number, its name or the beginning of that."""
        return not ("://" in self.name or "@" in self.name or self.is_folder)

    def may_be_had(self, *, has_service: bool) -> bool:
        """True if a base model might go by the name: it has an organization before it, or is on this machine.
        `has_service`: a service is configured, and may have base models of which nobody here knows.
        """
        plain = published_name(self.name)
        if plain is None or plain.startswith("cookhouse/"):
            return False
        organization, slash, _ = plain.partition("/")
        if has_service or (slash and not is_folder(Path(organization))):
            return True
        from cookhouse.models.hub import HubPart, current_hub

        try:
            return current_hub().find(plain, HubPart.CONFIG) is not None
        except InputError:  # no name that a hub could have
            return False

    def path(self, _: Purpose, /) -> str:
        raise _names_none(self.name)

    def place(self, _: Purpose, /) -> Mapping[str, str]:
        return {"base_model": self.name}

    def origin(self, _among: Iterable[Path], /) -> Origin:
        return Origin(base_model=self.name)


def find_weights(name: str, registry: ModelRegistry | None = None) -> Weights:
    """Find the weights of a name; whether they exist is found out when something is asked of them."""
    if name.startswith(_TINKER):
        return CheckpointPath(name)
    here = Path(name)
    if _is_run(here):
        return RunWeights(name)
    if is_peft_folder(folder := ADAPTER_FOLDERS.get(name, here)):
        return PeftWeights(name, folder)
    if names_registered_model(name) and not here.exists():
        return RegisteredWeights(name, registry)
    return BaseModelWeights(name)


def with_registry(weights: Weights, registry: str | None) -> Weights:
    """The weights, those of a registered model with the registry of this name. Raises as `open_registry`."""
    return weights.in_registry(registry) if isinstance(weights, RegisteredWeights) else weights


def is_checkpoint_path(text: str) -> bool:
    """True if a text is the `tinker://` path of a checkpoint."""
    return text.startswith(_TINKER)


def is_no_path_here(name: str) -> bool:
    """True if a name has the form of one that a service or a registry knows, so that no file is looked for."""
    return is_checkpoint_path(name) or names_registered_model(name)


def is_same_renderer(one: str, other: str) -> bool:
    """True if two names of renderers mean one; that of a file is known by its last part, wherever it is named from."""
    return Path(one).name == Path(other).name


def other_format(setting: str, name: str, trained: str, written: str) -> InputError:
    """The error of weights that were trained in another chat format than a run writes."""
    return InputError(
        f"{setting}={name} was trained in the chat format {trained}, and this run writes {written}, which it has not "
        f"learned; set renderer_name={trained}, or force_renderer=true to go on in {written}"
    )


def no_checkpoint(run: Path) -> InputError:
    """The error of a run without a checkpoint, with the runs in its folder that have one: those of a sweep."""
    if parts := [shlex.quote(str(part)) for part in _runs([run])]:
        more = f" and {len(parts) - _MAX_SHOWN} more" if len(parts) > _MAX_SHOWN else ""
        return InputError(
            f"{run} has no checkpoint of its own; name one of its runs: {', '.join(parts[:_MAX_SHOWN])}{more}"
        )
    return InputError(f"the run in {run} has saved no checkpoint yet; let it finish, or resume it")


def _names_none(name: str) -> InputError:
    return InputError(
        f"{name!r} names no weights; give a {_TINKER} path, the folder of a run that has saved some, a PEFT folder, or "
        "a registered model as NAME@VERSION or NAME@STAGE"
    )


def _origin_of_run(run: Path) -> Origin:
    try:
        settings: Any = json.loads((run / _CONFIG).read_text(encoding="utf-8"))["config"]
        found = [settings.get(key) for key in ("model_name", "renderer_name")]
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):  # what it is then is asked of the service
        return Origin()
    base_model, renderer_name = (value if isinstance(value, str) else None for value in found)
    return Origin(base_model=base_model, renderer_name=renderer_name)


def _runs(among: Iterable[Path]) -> Iterator[Path]:
    for folder in among:
        if folder.is_dir():
            yield from (file.parent for file in sorted(folder.glob(f"*/{CHECKPOINTS_FILE}")))


def _paths(run: Path) -> set[str | None]:
    try:
        return {path for saved in _saved(run) for path in (saved.state_path, saved.sampler_path)}
    except (InputError, OSError):  # somebody else's run, of which nothing was said
        return set()


def _saved(run: Path) -> list[Checkpoint]:
    return CheckpointFile(run / CHECKPOINTS_FILE).read()


def _is_run(folder: Path) -> bool:
    try:
        return any((folder / name).is_file() for name in _RUN_FILES)
    except (OSError, ValueError):  # what is no path at all
        return False
