"""What the embedded service would say of base models, without starting it."""

import subprocess
import sys
from collections.abc import Sequence

from cookhouse.assets import TINY_MODEL
from cookhouse.errors import InputError, ServiceError
from cookhouse.model_names import plain_name
from cookhouse.models.catalog.files import has_config, model_folder

_COMMAND = (sys.executable, "-m", "cookhouse.engine.model_check")
_REFUSED = 2


def check_models(names: Sequence[str]) -> None:
    """Refuse models that the engine cannot run, by their configs; those whose config is not on this machine are left.
    Some seconds, of which the calling thread computes nothing.

    Raises:
        InputError: the engine cannot run one of them.
        ServiceError: it cannot be said.
    """
    found = [model_folder(name) for name in names if plain_name(name) != TINY_MODEL]
    folders = [str(folder) for folder in found if folder is not None and has_config(folder)]
    if not folders:
        return
    done = subprocess.run(
        [*_COMMAND, *folders], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode == 0:
        return
    reason = done.stderr.strip().rpartition("\n")[2]
    if done.returncode == _REFUSED:
        raise InputError(reason)
    raise ServiceError(f"the engine could not be asked about {', '.join(names)}: {reason or 'it gave no reason'}")
