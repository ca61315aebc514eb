"""Manifest of a checkpoint: `adapter.json`, which is read without torch.

It names the format, the base model, the adapter's spec, and the sites in the order in which the flat tensors have them.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cookhouse.engine.contract import DamagedError, LoraSpec
from cookhouse.errors import InputError
from cookhouse.models.base_files import BaseFiles, changes_between

_FORMAT = 1
_MANIFEST = "adapter.json"


def write_manifest(
    folder: Path,
    base_model: str,
    spec: LoraSpec,
    *,
    sites: list[list[str | int]],
    num_steps: int,
    base_files: BaseFiles,
    has_gradient: bool = False,
) -> None:
    """Write what makes a folder a checkpoint."""
    manifest = {
        "format": _FORMAT,
        "base_model": base_model,
        "base_files": dict(base_files),
        "lora": asdict(spec),
        "sites": sites,
        "num_steps": num_steps,
        "has_gradient": has_gradient,
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def read_spec(folder: Path) -> tuple[str, LoraSpec]:
    """Base model and adapter spec of a checkpoint folder.

    Raises:
        DamagedError: the folder holds no checkpoint.
    """
    manifest = read_manifest(folder)
    try:
        return str(manifest["base_model"]), LoraSpec(**manifest["lora"])
    except (KeyError, TypeError) as error:
        raise DamagedError(f"checkpoint {folder} has an unreadable {_MANIFEST}: {error}") from error


def read_num_steps(folder: Path) -> int:
    """Optimizer steps that a checkpoint with optimizer has taken; 0 for one without.

    Raises:
        DamagedError: the folder holds no checkpoint.
    """
    return int(read_manifest(folder)["num_steps"])


def check_base(folder: Path, base_files: BaseFiles) -> None:
    """See that a checkpoint was made over a base model of these files, as far as both are known.

    Raises:
        InputError: it was made over another.
        DamagedError: the folder holds no checkpoint.
    """
    manifest = read_manifest(folder)
    recorded = manifest.get("base_files")
    before = {str(name): str(digest) for name, digest in recorded.items()} if isinstance(recorded, dict) else {}
    if (changes := changes_between(before, base_files)) is not None:
        raise InputError(
            f"the weights of base model {manifest.get('base_model')} have changed since checkpoint {folder} was made: "
            f"{changes}. Put the old ones back, or train on the new ones from the start"
        )


def holds_gradient(folder: Path) -> bool:
    """True if a checkpoint has a gradient; where it has none, that of its model was zero, or left out.

    Raises:
        DamagedError: the folder holds no checkpoint.
    """
    return bool(read_manifest(folder).get("has_gradient", False))


def is_checkpoint(folder: Path) -> bool:
    """True if the folder looks like one that `write` made."""
    return (folder / _MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest that `write_manifest` wrote.

    Raises:
        DamagedError: the folder holds no checkpoint.
    """
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedError(f"{folder} holds no readable checkpoint: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT or "num_steps" not in manifest:
        raise DamagedError(f"{folder} holds no checkpoint of format {_FORMAT}")
    return manifest
