"""The embedded model, adapters of it, and data sets: what a run uses when it is given nothing else."""

from pathlib import Path

from cookhouse.errors import UnknownNameError
from cookhouse.models.names import plain_name

TINY_MODEL = "cookhouse/tiny"
_MODEL_FOLDERS = {TINY_MODEL: "tiny"}
_ROOT = Path(__file__).parent
ADAPTER_FOLDERS = {
    "cookhouse/tiny-arithmetic": _ROOT / "adapters/arithmetic",
    "cookhouse/tiny-chat": _ROOT / "adapters/chat",
}
"""The PEFT folders of the embedded adapters, by name."""


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
    """Names of which the package holds weights: models, and adapters of them."""
    return [*_MODEL_FOLDERS, *ADAPTER_FOLDERS]


ADAPTER_RENDERER = "human_ai"
"""The chat format that the embedded adapters know."""


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
