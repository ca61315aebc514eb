"""The embedded model, adapters of it, and data sets: what a run uses when it is given nothing else."""

from pathlib import Path

from cookhouse.errors import UnknownNameError
from cookhouse.models.names import plain_name

TINY_MODEL = "cookhouse/tiny"
_MODEL_FOLDERS = {TINY_MODEL: "tiny"}
_ADAPTER_FOLDERS = {"cookhouse/tiny-arithmetic": "adapters/arithmetic", "cookhouse/tiny-chat": "adapters/chat"}
_ROOT = Path(__file__).parent


def resolve_model(name: str) -> str:
    """The folder of an embedded model, or `name` itself, less a context suffix, when it is a hub id or a folder.

    Raises:
        UnknownNameError: `name` starts with `cookhouse/` and no such model is embedded.
    """
    name = plain_name(name)
    if name in _MODEL_FOLDERS:
        return str(_ROOT / _MODEL_FOLDERS[name])
    if name.startswith("cookhouse/"):
        raise UnknownNameError("embedded model", name, _MODEL_FOLDERS)
    return name


def absolute_model(name: str) -> str:
    """A name that means the same in any folder: that of a folder that holds a model is its whole path, others stay."""
    files = ("config.json", "adapter_config.json")
    is_model = not name.startswith("cookhouse/") and any((Path(name) / file).is_file() for file in files)
    return str(Path(name).resolve()) if is_model else name


def embedded_names() -> list[str]:
    """What the package holds weights of: models, and adapters of them."""
    return [*_MODEL_FOLDERS, *_ADAPTER_FOLDERS]


ADAPTER_RENDERER = "human_ai"
"""The chat format that the embedded adapters know."""


def adapter_folder(name: str) -> Path | None:
    """The PEFT folder of an embedded adapter; None: there is none of that name."""
    folder = _ADAPTER_FOLDERS.get(name)
    return None if folder is None else _ROOT / folder


def adapter_folders() -> list[Path]:
    """The PEFT folders of all embedded adapters."""
    return [_ROOT / folder for folder in _ADAPTER_FOLDERS.values()]


def data_file(name: str) -> Path:
    """Path of a bundled data file, e.g. `conversations/train.jsonl`.

    Raises:
        UnknownNameError: no such file is bundled.
    """
    data = _ROOT / "data"
    bundled = {path.relative_to(data).as_posix(): path for path in data.glob("*/*")}
    if name not in bundled:
        raise UnknownNameError("bundled data file", name, bundled)
    return bundled[name]


def new_file(name: str) -> Path:
    """Path of a template that `cookhouse new` writes, e.g. `recipe.py.txt`."""
    return _ROOT / "new" / name
