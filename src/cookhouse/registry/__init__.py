"""Registered models: versions under names, their stages, what they measured, and where they came from.

    registry = open_registry("runs/registry.db", os.environ)
    version = registry.register(NewModel(name="sums", base_model="cookhouse/tiny", artifact=read_artifact(path, files)))
    registry.promote(version.id, ModelStage.PRODUCTION)

A registered model names weights wherever a path of them is asked for: `sums@1`, `sums@production`.
"""

from cookhouse.registry.artifact import (
    ArtifactState,
    artifact_state,
    check_artifact,
    folder_sha256,
    read_artifact,
    sha256_of_digests,
)
from cookhouse.registry.document import config_sha256, from_document, to_document
from cookhouse.registry.lineage import ancestors, children_by_parent, descendants
from cookhouse.registry.model import Artifact, Descent, ModelStage, ModelVersion, NewModel, StageChange
from cookhouse.registry.named import DEFAULT_REGISTRY, REGISTRIES, REGISTRY_VARIABLE, RegistryBuilder, open_registry
from cookhouse.registry.noop import NoopRegistry
from cookhouse.registry.port import ModelRegistry
from cookhouse.registry.query import MetricBound, Query, parse_bound
from cookhouse.registry.reference import check_name, names_registered_model, parse_reference, parse_stage

__all__ = [
    "DEFAULT_REGISTRY",
    "REGISTRIES",
    "REGISTRY_VARIABLE",
    "Artifact",
    "ArtifactState",
    "Descent",
    "MetricBound",
    "ModelRegistry",
    "ModelStage",
    "ModelVersion",
    "NewModel",
    "NoopRegistry",
    "Query",
    "RegistryBuilder",
    "StageChange",
    "ancestors",
    "artifact_state",
    "check_artifact",
    "check_name",
    "children_by_parent",
    "config_sha256",
    "descendants",
    "folder_sha256",
    "from_document",
    "names_registered_model",
    "open_registry",
    "parse_bound",
    "parse_reference",
    "parse_stage",
    "read_artifact",
    "sha256_of_digests",
    "to_document",
]
