"""The port of a hub client, and the content of a model's folder."""

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from cookhouse.errors import InputError

_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
MAX_NAME_CHARACTERS = 96
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tiktoken.model")
"""Each is a tokenizer's vocabulary; one of them is enough."""


class HubPart(StrEnum):
    """Part of a model that is asked for."""

    CONFIG = "config"
    """config.json alone."""
    TOKENIZER = "tokenizer"
    """With config.json and chat template."""
    MODEL = "model"
    """The weights too, in safetensors."""


class HubClient(Protocol):
    """Folders of models by name, such as `Qwen/Qwen3-8B`. Every call blocks; see `check_name` for names."""

    def find(self, name: str, part: HubPart) -> Path | None:
        """The folder of a model that is on this machine with all of that part, or None. Asks no network.

        Raises:
            InputError: the name cannot be one.
        """

    def download(self, name: str, part: HubPart) -> Path:
        """The folder of a model; what is not on this machine is downloaded, and its size is said before that begins.

        Raises:
            InputError: there is no such model, or it may not be read, or the hub is out of reach, or the disk is full.
        """

    def upload(self, folder: Path, name: str, *, private: bool = True) -> str:
        """Put a folder under a name, in a repository that is made where there is none, and return its address.

        Raises:
            InputError: there is no such folder, or the name may not be written to.
            ServiceError: the hub failed.
        """


def check_name(name: str) -> str:
    """The name itself.

    Raises:
        InputError: it is none that a hub could have.
    """
    if len(name) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(name) or ".." in name or "--" in name:
        raise InputError(
            f"{name[:MAX_NAME_CHARACTERS]!r} is neither a local folder nor a possible hub id, such as Qwen/Qwen3-8B; "
            "name a local folder that holds the model"
        )
    return name


def is_whole(folder: Path, part: HubPart) -> bool:
    """True if a folder has all of a part."""
    has_config = (folder / "config.json").is_file()
    has_tokenizer = any((folder / name).is_file() for name in _TOKENIZER_FILES)
    match part:
        case HubPart.CONFIG:
            return has_config
        case HubPart.TOKENIZER:
            return has_tokenizer
        case HubPart.MODEL:
            return has_config and has_tokenizer and _has_weights(folder)


def _has_weights(folder: Path) -> bool:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return (folder / "model.safetensors").is_file()
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, OSError):  # cut short: what is there is not all
        return False
    return all((folder / Path(str(shard)).name).is_file() for shard in shards)
