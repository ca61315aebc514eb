"""Registered models and their versions: plain data, the same whichever adapter keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum


class ModelStage(StrEnum):
    """Stage of a version."""

    EXPERIMENT = "experiment"
    STAGING = "staging"
    PRODUCTION = "production"
    """One version of a name at most: the one before it is archived."""
    ARCHIVED = "archived"


class Descent(StrEnum):
    """Descent of a version from its parent, or from the base model."""

    FINE_TUNED_FROM = "fine_tuned_from"
    DPO_TRAINED_FROM = "dpo_trained_from"
    RL_TRAINED_FROM = "rl_trained_from"
    DISTILLED_FROM = "distilled_from"


@dataclass(frozen=True, kw_only=True)
class StageChange:
    """A version came to a stage."""

    stage: ModelStage
    at: float
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Weights, by the name that a service or a file system has for them."""

    path: str
    """A `tinker://` path, or a folder."""
    files: str | None = None
    """Folder of their bytes on this machine; None: they are on another service."""
    sha256: str | None = None
    """Of their files when they were registered, by `folder_sha256`, read here or told by their service; None: neither
    was to be had."""


@dataclass(frozen=True, kw_only=True)
class NewModel:
    """Model to be registered as the next version of a name."""

    name: str
    base_model: str
    artifact: Artifact
    """Weights to train on from; or to sample from, if there are no others."""
    sampler: Artifact | None = None
    """The same weights as they were saved to sample from, apart from those to train on from."""
    parent: str | None = None
    """`name@version` of the one that it came from, which may have been deleted since; None: the base model."""
    descent: Descent = Descent.FINE_TUNED_FROM
    metrics: Mapping[str, float] = field(default_factory=dict)
    headline: str | None = None
    """The most telling metric, of `metrics`."""
    recipe: str | None = None
    run_folder: str | None = None
    """Of the run that trained it."""
    config_hash: str | None = None
    """SHA-256 of that run's settings, by `config_sha256`: two versions of one hash differ in their data or luck."""
    is_synthetic: bool = False
    """Whether something that no service computed went into it, weights or metrics."""


@dataclass(frozen=True, kw_only=True)
class ModelVersion(NewModel):
    """A version as a registry has it."""

    version: int
    """From 1, in the order of registration; the number of a deleted one is not given again."""
    history: tuple[StageChange, ...]
    """The stages that it came to, the present one last."""

    @classmethod
    def of(cls, new: NewModel, version: int, first: StageChange) -> "ModelVersion":
        """Version of what was registered, with its number."""
        facts = {each.name: getattr(new, each.name) for each in fields(NewModel)}
        return cls(**facts, version=version, history=(first,))

    @property
    def id(self) -> str:
        """Its name in all places: `name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def stage(self) -> ModelStage:
        return self.history[-1].stage

    @property
    def created_at(self) -> float:
        """Seconds since 1970."""
        return self.history[0].at

    @property
    def weights_to_sample(self) -> Artifact:
        """Weights that were saved for it, else the only ones there are."""
        return self.sampler or self.artifact
