"""Fully trained weights on disk: a folder as of `files.checkpoint`, with each parameter by name in safetensors shards.

`params-*.safetensors` hold the weights; `adam_m-*.safetensors` and `adam_v-*.safetensors`, if saved, the optimizer, and
`gradient-*.safetensors` the gradient.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cookhouse.engine.contract import DamagedError, LoraSpec
from cookhouse.engine.files.manifest import read_manifest, write_manifest
from cookhouse.engine.files.new_folder import new_folder
from cookhouse.engine.train.full import FullLayout
from cookhouse.errors import InputError

_SHARD_BYTES = 2**30
"""A shard is copied in memory while it is written."""


def write_full(
    folder: Path,
    base_model: str,
    layout: FullLayout,
    tensors: Mapping[str, Tensor],
    num_steps: int,
    *,
    is_durable: bool = True,
) -> None:
    """Write flat tensors of a layout into a new folder, all or nothing.

    Raises:
        InputError: the folder exists.
        OSError: the disk is full or not writable; nothing is left behind.
    """
    with new_folder(folder, is_durable=is_durable) as temporary:
        for name, flat in tensors.items():
            for index, shard in enumerate(_shards(layout.views(flat.detach()))):
                held = {key: tensor.cpu() for key, tensor in shard.items()}
                save_file(held, temporary / f"{name}-{index:05d}.safetensors")
        write_manifest(
            temporary,
            base_model,
            LoraSpec(rank=0),
            sites=[],
            num_steps=num_steps,
            base_files={},  # it holds all weights
            has_gradient="gradient" in tensors,
        )


def read_full(folder: Path, layout: FullLayout, into: Mapping[str, Tensor], *, takes_infinite: bool = False) -> int:
    """Fill flat tensors of a layout by name, and return the number of optimizer steps taken. All is checked first;
    values that are not finite are refused unless `takes_infinite`.

    Raises:
        InputError: the folder holds no such weights, or no optimizer where one is asked for; nothing has changed.
        DamagedError: they cannot be read.
    """
    num_steps = int(read_manifest(folder)["num_steps"])
    try:
        with ExitStack() as stack:
            # Held open until all is copied: a checkpoint may be deleted meanwhile.
            files = {name: [stack.enter_context(file) for file in _open(folder, name)] for name in into}
            for name in into:
                _check(folder, layout, name, files[name], takes_infinite=takes_infinite)
            for name, flat in into.items():
                views = layout.views(flat)
                for key, tensor in _tensors(files[name]):
                    views[key].copy_(tensor)
    except (OSError, SafetensorError) as error:
        raise DamagedError(f"checkpoint {folder} cannot be read: {error}") from error
    return num_steps


def _check(folder: Path, layout: FullLayout, name: str, files: Iterable[Any], *, takes_infinite: bool) -> None:
    found = {}
    for key, tensor in _tensors(files):
        is_float = tensor.dtype in (torch.float32, torch.bfloat16)
        if not is_float or not (takes_infinite or torch.isfinite(tensor).all()):
            raise InputError(f"checkpoint {folder}: {name} of {key} is not finite fp32 or bf16")
        found[key] = tuple(tensor.shape)
    if name == "gradient" and not found:
        raise DamagedError(f"checkpoint {folder} should hold a gradient, and has none")
    if name != "params" and not found:
        raise InputError(
            f"checkpoint {folder} holds no {name}; load it without optimizer, or use a training checkpoint"
        )
    if found != dict(layout.shapes):
        raise InputError(f"checkpoint {folder} was made for another base model, or is not of all its weights")


def _open(folder: Path, name: str) -> Iterator[Any]:
    return (safe_open(path, framework="pt") for path in sorted(folder.glob(f"{name}-*.safetensors")))


def _tensors(files: Iterable[Any]) -> Iterator[tuple[str, Tensor]]:
    for file in files:
        for key in file.keys():  # noqa: SIM118  not a mapping
            yield key, file.get_tensor(key)


def _shards(views: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Parameters in order, about `_SHARD_BYTES` together; a larger one is alone."""
    shard: dict[str, Tensor] = {}
    num_bytes = 0
    for name, view in views.items():
        size = view.nbytes
        if shard and num_bytes + size > _SHARD_BYTES:
            yield shard
            shard, num_bytes = {}, 0
        shard[name] = view
        num_bytes += size
    yield shard
