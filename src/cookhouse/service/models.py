"""What the embedded service would say of base models, without starting it."""

from collections.abc import Sequence

from cookhouse.assets import TINY_MODEL
from cookhouse.engine.model_check import check_apart
from cookhouse.models.catalog.files import has_config, model_folder
from cookhouse.models.names import plain_name


def check_models(names: Sequence[str]) -> None:
    """Refuse models that the engine cannot run, by their configs; those whose config is not on this machine are left.

    Raises:
        InputError: the engine cannot run one of them.
        ServiceError: it cannot be said.
    """
    found = [model_folder(name) for name in names if plain_name(name) != TINY_MODEL]
    folders = [str(folder) for folder in found if folder is not None and has_config(folder)]
    if folders:
        check_apart(folders)
