"""Fingerprints of the files of a model's weights: enough to find later whether they have changed."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from cookhouse.errors import InputError
from cookhouse.models.catalog.files import model_folder
from cookhouse.models.hub import HubPart

BaseFiles: TypeAlias = Mapping[str, str]
"""Of each file of weights, by name: its size in bytes, and a digest of its bytes, or of places of a large one."""

MAX_WHOLE_BYTES = 64 * 2**20
"""Of a larger file the beginning, with the names and shapes of what is in it, and evenly spaced places are read."""
_NUM_PLACES = 512
_PLACE_BYTES = 4 * 2**10
_START_BYTES = 256 * 2**10
_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def files_of_model(name: str) -> BaseFiles:
    """Of an embedded name, a folder, or a hub id that is on this machine; empty where its weights are not here.

    Raises:
        InputError: they cannot be read.
    """
    folder = model_folder(name, HubPart.MODEL)
    return {} if folder is None else files_in(folder)


def files_in(folder: Path) -> BaseFiles:
    """Of the files of a folder from which `transformers` reads a model. Raises `InputError` if they cannot be read."""
    try:
        return {path.name: _digest(path) for path in _weights(folder)}
    except OSError as error:
        raise InputError(f"the weights in {folder} cannot be read: {error.strerror}") from error


def changes_between(before: BaseFiles, now: BaseFiles) -> str | None:
    """Differences, in words; None if there are none, or nothing is known of one of them."""
    if not before or not now or before == now:
        return None
    gone, new = sorted(before.keys() - now.keys()), sorted(now.keys() - before.keys())
    changed = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    said = [
        f"{_some(names)} {what}" for names, what in ((changed, "differs"), (gone, "is gone"), (new, "is new")) if names
    ]
    return ", ".join(said)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"each of {len(names)} files such as {names[0]}"


def _weights(folder: Path) -> list[Path]:
    if (folder / _WHOLE).is_file():
        return [folder / _WHOLE]
    try:
        named = set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):  # refused where the model is loaded
        return sorted(folder.glob("*.safetensors"))
    return sorted(folder / str(name) for name in named if (folder / str(name)).is_file() and "/" not in str(name))


def _digest(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(b"%d\n" % num_bytes)
        for start, length in _places(num_bytes):
            digest.update(os.pread(file.fileno(), length, start))
    return f"{num_bytes}:{digest.hexdigest()[:32]}"


def _places(num_bytes: int) -> Iterator[tuple[int, int]]:
    """Start and length of what is read of a file."""
    if num_bytes <= MAX_WHOLE_BYTES:
        yield from ((start, _START_BYTES) for start in range(0, num_bytes, _START_BYTES))
        return
    yield 0, _START_BYTES
    last = num_bytes - _PLACE_BYTES
    yield from ((index * last // (_NUM_PLACES - 1), _PLACE_BYTES) for index in range(_NUM_PLACES))
