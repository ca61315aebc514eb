"""Facts that the files of a model state: config.json and the chat template."""

import json
from pathlib import Path
from typing import Any

from cookhouse.assets import resolve_model
from cookhouse.errors import InputError
from cookhouse.models.hub import HubPart, current_hub

_CONFIG = "config.json"


def model_folder(model: str, part: HubPart = HubPart.CONFIG) -> Path | None:
    """The folder of a model with that part of it: an embedded model, a local folder, or what the hub in use has on this
    machine. None: it is not here.
    """
    folder = Path(resolve_model(model))
    if folder.is_dir():
        return folder
    try:
        return current_hub().find(str(folder), part)
    except InputError:  # a name that the service may know, and a hub cannot
        return None


def tokenizer_folder(model: str) -> Path:
    """The folder of a hub id with tokenizer, config.json and chat template, downloaded if it is not on this machine.

    Raises:
        InputError: there is no such model, or the hub is out of reach.
    """
    return current_hub().download(resolve_model(model), HubPart.TOKENIZER)


def has_config(folder: Path) -> bool:
    """True if a folder has a config.json; that of a tokenizer alone has none."""
    return (folder / _CONFIG).is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """The values of config.json. Raises `InputError` if there is none, or it cannot be read."""
    if not has_config(folder):
        raise InputError(f"{folder} holds no {_CONFIG}, so it is no model; name a folder that has one, or a hub id")
    return _read_json(folder / _CONFIG)


def has_chat_template(folder: Path) -> bool:
    """True if there is a chat template, or several by name; base models have none."""
    if (template := folder / "chat_template.jinja").is_file():
        return bool(_read_text(template))
    config = folder / "tokenizer_config.json"
    if config.is_file() and _read_json(config).get("chat_template"):
        return True
    return any((folder / "additional_chat_templates").glob("*.jinja"))


def _read_json(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    try:
        value = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object")
    return value


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
