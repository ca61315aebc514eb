"""PEFT folders as weights: how one is known, and under which path a server that is given it offers it.

Both halves read this: what a client asks for is what the server that it started has made of the folder.
"""

import hashlib
import json
from pathlib import Path

from cookhouse.assets import TINY_MODEL, resolve_model
from cookhouse.errors import InputError

_PREFIX = "tinker://peft-"
_FILES = ("adapter_config.json", "adapter_model.safetensors")


def is_peft_folder(folder: Path) -> bool:
    """True if a PEFT adapter lies there."""
    try:
        return (folder / _FILES[0]).is_file()
    except (OSError, ValueError):  # what is no path at all
        return False


def adapted_model(folder: Path) -> str | None:
    """The base model that a PEFT folder says it adapts; None: it does not say."""
    try:
        name = json.loads((folder / _FILES[0]).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):  # what it is then is asked of the service
        return None
    if not isinstance(name, str):
        return None
    return TINY_MODEL if name == resolve_model(TINY_MODEL) else name


def peft_path(folder: Path) -> str:
    """The `tinker://` path of a PEFT folder's adapter, which hangs on what its files hold and on nothing else.

    Raises:
        InputError: a file is missing or cannot be read.
    """
    digest = hashlib.sha256()
    for name in _FILES:
        try:
            with (folder / name).open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise InputError(f"{folder} is no PEFT folder with its weights in safetensors: {error}") from error
    return f"{_PREFIX}{digest.hexdigest()[:32]}:train:0/weights/adapter"


def is_peft_path(path: str) -> bool:
    """True if a path is one of a PEFT folder's adapter."""
    return path.startswith(_PREFIX)
