"""Adapters on disk: a folder with `adapter.safetensors` and its manifest, written whole or not at all.

The safetensors file holds flat tensors: `params`, with an optimizer `adam_m` and `adam_v`, and `gradient` where passes
have run since the last step and it was asked for. Training state is fp32, weights for sampling have the precision of
sampling.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cookhouse.engine.contract import DamagedError
from cookhouse.engine.files.manifest import check_base, holds_gradient, read_manifest, write_manifest
from cookhouse.engine.files.new_folder import new_folder
from cookhouse.engine.lora.lora import AdapterLayout
from cookhouse.errors import InputError

_TENSORS = "adapter.safetensors"


def write(
    folder: Path,
    base_model: str,
    layout: AdapterLayout,
    tensors: Mapping[str, Tensor],
    num_steps: int,
    *,
    is_durable: bool = True,
) -> None:
    """Write a new folder, all or nothing.

    Raises:
        InputError: the folder exists.
        OSError: the disk is full or not writable; nothing is left behind.
    """
    sites: list[list[str | int]] = [[site.name, site.in_features, site.out_features] for site in layout.sites]
    with new_folder(folder, is_durable=is_durable) as temporary:
        save_file({name: tensor.detach().cpu() for name, tensor in tensors.items()}, temporary / _TENSORS)
        write_manifest(
            temporary,
            base_model,
            layout.spec,
            sites=sites,
            num_steps=num_steps,
            base_files=layout.base_files,
            has_gradient="gradient" in tensors,
        )


def read(
    folder: Path, layout: AdapterLayout, *, with_optimizer: bool, with_gradient: bool = False
) -> tuple[dict[str, Tensor], int]:
    """Flat fp32 tensors on the CPU, and the number of optimizer steps taken.

    With a gradient, if there is one, all is taken as it was, infinite values as well.

    Raises:
        InputError: the folder holds no checkpoint of this layout, or of a base model whose weights have changed, or no
            optimizer where one is asked for.
        DamagedError: it holds none that can be read.
    """
    manifest = read_manifest(folder)
    sites = [[site.name, site.in_features, site.out_features] for site in layout.sites]
    if manifest.get("sites") != sites or manifest.get("lora", {}).get("rank") != layout.spec.rank:
        raise InputError(f"checkpoint {folder} was made for another base model or adapter shape")
    check_base(folder, layout.base_files)
    names = ["params", *(["adam_m", "adam_v"] if with_optimizer else [])]
    if with_gradient and holds_gradient(folder):
        names.append("gradient")
    try:
        with safe_open(folder / _TENSORS, framework="pt") as file:
            missing = sorted(set(names) - set(file.keys()))
            if "gradient" in missing:
                raise DamagedError(f"checkpoint {folder} should hold a gradient, and has none")
            if missing:
                raise InputError(
                    f"checkpoint {folder} holds no {', '.join(missing)}; load it without optimizer, or use a training "
                    "checkpoint"
                )
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise DamagedError(f"checkpoint {folder} cannot be read: {error}") from error
    for name, tensor in tensors.items():
        if tensor.shape != (layout.num_parameters,) or tensor.dtype not in (torch.float32, torch.bfloat16):
            raise DamagedError(f"checkpoint {folder}: {name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
        if not (with_gradient or torch.isfinite(tensor).all()):
            raise InputError(f"checkpoint {folder}: {name} holds NaN or infinity")
    return {name: tensor.float() for name, tensor in tensors.items()}, int(manifest["num_steps"])
