"""Adapters on disk: a folder with `adapter.safetensors` and its manifest, written whole or not at all.

The safetensors file holds flat tensors: `params`, with an optimizer `adam_m` and `adam_v`, and `gradient` where passes
have run since the last step and it was asked for. Training state is fp32, weights for sampling have the precision of
sampling.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

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
    with new_folder(folder, is_durable=is_durable) as temporary:
        save_file({name: tensor.detach().cpu() for name, tensor in tensors.items()}, temporary / _TENSORS)
        write_manifest(
            temporary,
            base_model,
            layout.spec,
            sites=_sites(layout),
            num_steps=num_steps,
            base_files=layout.base_files,
            has_gradient="gradient" in tensors,
        )


def layout_of(folder: Path, layout: AdapterLayout) -> AdapterLayout:
    """A layout in the form that a checkpoint has: in older ones experts share nothing.

    Raises:
        InputError: the folder holds no checkpoint of such a layout, but for what experts share.
        DamagedError: it holds none that can be read.
    """
    manifest = read_manifest(folder)
    found = manifest.get("sites")
    shared = [str(site[3]) if len(site) > 3 else "" for site in found] if _is_list_of_lists(found) else []
    is_known = len(shared) == len(layout.sites) and all(
        one in ("", site.shared) for one, site in zip(shared, layout.sites, strict=True)
    )
    own = layout.sharing(shared) if is_known else layout
    if found != _sites(own) or manifest.get("lora", {}).get("rank") != layout.spec.rank:
        raise InputError(f"checkpoint {folder} was made for another base model or adapter shape")
    return own


def read(
    folder: Path, layout: AdapterLayout, *, with_optimizer: bool, with_gradient: bool = False
) -> tuple[dict[str, Tensor], int]:
    """Flat fp32 tensors on the CPU, and the number of optimizer steps taken; of the layout that `layout_of` says.

    With a gradient, if there is one, all is taken as it was, infinite values as well.

    Raises:
        InputError: the folder holds no checkpoint of this layout, or of a base model whose weights have changed, or no
            optimizer where one is asked for.
        DamagedError: it holds none that can be read.
    """
    manifest = read_manifest(folder)
    if layout_of(folder, layout) != layout:
        raise InputError(f"checkpoint {folder} has adapters of experts in another form")
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


def _sites(layout: AdapterLayout) -> list[list[str | int]]:
    """Sites as a manifest has them: name, features in and out, and the matrix that experts share, if they do."""
    shared = ([site.shared] if site.shared else [] for site in layout.sites)
    return [[s.name, s.in_features, s.out_features, *more] for s, more in zip(layout.sites, shared, strict=True)]


def _is_list_of_lists(sites: object) -> TypeGuard[list[list[Any]]]:
    return isinstance(sites, list) and all(isinstance(site, list) for site in sites)
