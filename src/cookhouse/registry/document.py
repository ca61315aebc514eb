"""A version as JSON, in which registries keep it and the command line shows it."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from cookhouse.errors import InputError
from cookhouse.registry.model import Artifact, Descent, ModelStage, ModelVersion, StageChange


def to_document(version: ModelVersion) -> str:
    """One line of JSON."""
    return json.dumps(asdict(version), sort_keys=True)


def from_document(text: str) -> ModelVersion:
    """Read what `to_document` wrote; of a later cookhouse too, whose further fields are left out.

    Raises:
        InputError: it is no version.
    """
    try:
        row: Mapping[str, Any] = json.loads(text)
        fields = {name: row[name] for name in ModelVersion.__dataclass_fields__ if name in row}
        return ModelVersion(
            **{
                **fields,
                "artifact": _artifact(row["artifact"]),
                "sampler": None if row.get("sampler") is None else _artifact(row["sampler"]),
                "descent": Descent(row["descent"]),
                "history": tuple(_change(change) for change in row["history"]),
                "metrics": {str(name): float(value) for name, value in row["metrics"].items()},
                "version": int(row["version"]),
            }
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"a row of the registry is no version of a model ({type(error).__name__}: {error})") from error


def config_sha256(settings: Mapping[str, Any]) -> str:
    """SHA-256 of settings by name, in the order of their names."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def with_folders(version: ModelVersion, convert: Callable[[str], str]) -> ModelVersion:
    """The version with every folder that it names converted."""

    def artifact(old: Artifact) -> Artifact:
        is_folder = "://" not in old.path
        return replace(
            old,
            path=convert(old.path) if is_folder else old.path,
            files=None if old.files is None else convert(old.files),
        )

    return replace(
        version,
        artifact=artifact(version.artifact),
        sampler=None if version.sampler is None else artifact(version.sampler),
        run_folder=None if version.run_folder is None else convert(version.run_folder),
    )


def _artifact(row: Mapping[str, Any]) -> Artifact:
    return Artifact(**{name: row[name] for name in Artifact.__dataclass_fields__ if name in row})


def _change(row: Mapping[str, Any]) -> StageChange:
    return StageChange(stage=ModelStage(row["stage"]), at=float(row["at"]))
