"""Shapes of a model's weights, from the headers of its safetensors files; the weights stay where they are."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from cookhouse.assets import resolve_model
from cookhouse.errors import InputError
from cookhouse.models.catalog.files import model_folder
from cookhouse.models.hub import HubPart, HuggingFaceHub, current_hub

_HEADER_LIMIT_BYTES = 100_000_000
_TIMEOUT_SECONDS = 10.0

Shapes = Mapping[str, tuple[int, ...]]
"""By the name of the weight."""


def weight_shapes(model: str) -> Shapes:
    """Shapes of an embedded model, a local folder or a hub id; of one that is not on this machine only the headers are
    downloaded.

    Raises:
        InputError: there is no such model, the hub cannot be reached, or a file cannot be read.
    """
    folder = model_folder(model, HubPart.MODEL)
    if folder is None:
        return _shapes_of_hub(resolve_model(model))
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(f"{folder} holds no safetensors file; counting parameters needs one")
    return {name: shape for path in files for name, shape in _shapes_of_file(path).items()}


def _shapes_of_file(path: Path) -> Shapes:
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        header = file.read(length) if length <= _HEADER_LIMIT_BYTES else b""
    try:
        entries = json.loads(header).items()
        return {name: tuple(map(int, entry["shape"])) for name, entry in entries if name != "__metadata__"}
    except (
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:  # no JSON, or none of safetensors
        raise InputError(f"{path} is not a safetensors file: its header cannot be read") from error


def _shapes_of_hub(name: str) -> Shapes:
    from huggingface_hub import constants
    from huggingface_hub.errors import HFValidationError

    hub = current_hub()
    if not isinstance(hub, HuggingFaceHub):
        raise InputError(f"the weights of {name!r} are not on this machine, and this hub gives no headers alone")
    if constants.HF_HUB_OFFLINE:
        raise InputError(f"the weights of {name!r} are not on this machine, and the hub is not asked (HF_HUB_OFFLINE)")
    api = hub.api
    try:
        api.model_info(name, timeout=_TIMEOUT_SECONDS)  # the calls below would retry a hub that is out of reach
        found = api.get_safetensors_metadata(name, timeout=_TIMEOUT_SECONDS)
    except HFValidationError as error:
        raise InputError(f"{name!r} is neither a local folder nor a possible hub id") from error
    except Exception as error:  # transport errors have no common class across versions of the hub's client
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"the headers of {name!r} cannot be read from the hub: {reason}") from error
    return {
        name: tuple(tensor.shape) for file in found.files_metadata.values() for name, tensor in file.tensors.items()
    }
