"""Adapters on disk: a folder with `adapter.safetensors` and `adapter.json`, written whole or not at all.

The safetensors file holds flat tensors: `params`, and with an optimizer `adam_m` and `adam_v`. Training state is fp32,
weights for sampling have the precision of sampling. The JSON names the format, the base model, the adapter's spec and
the sites in the order in which they lie in the flat tensors.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cookhouse.engine.contract import DamagedError, LoraSpec
from cookhouse.engine.lora.lora import AdapterLayout
from cookhouse.errors import InputError

_FORMAT = 1
_TENSORS = "adapter.safetensors"
_MANIFEST = "adapter.json"


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
        write_manifest(temporary, base_model, layout.spec, sites=sites, num_steps=num_steps)


def write_manifest(
    folder: Path, base_model: str, spec: LoraSpec, *, sites: list[list[str | int]], num_steps: int
) -> None:
    """Write what makes a folder a checkpoint."""
    manifest = {
        "format": _FORMAT,
        "base_model": base_model,
        "lora": asdict(spec),
        "sites": sites,
        "num_steps": num_steps,
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


@contextmanager
def new_folder(folder: Path, *, is_durable: bool = True) -> Iterator[Path]:
    """A folder to fill, under a temporary name; leaving flushes it to disk, if durable, and renames it to `folder`.

    Raises:
        InputError: the folder exists.
        OSError: the disk is full or not writable; nothing is left behind.
    """
    if folder.exists():
        raise InputError(f"folder {folder} exists; choose another name")
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        _let_umask_decide(temporary)
        if is_durable:
            for path in (*temporary.rglob("*"), temporary):
                _flush(path)
        temporary.rename(folder)
        if is_durable:
            _flush(folder.parent)
    except SafetensorError as error:
        raise OSError(str(error)) from error  # which says what the system said
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _let_umask_decide(folder: Path) -> None:
    """Give new files the mode that others get here: safetensors makes its own readable by their owner alone."""
    mode = folder.stat().st_mode & 0o666  # of a folder the umask has taken what it takes of a file
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def read(folder: Path, layout: AdapterLayout, *, with_optimizer: bool) -> tuple[dict[str, Tensor], int]:
    """Flat fp32 tensors on the CPU, and the number of optimizer steps taken.

    Raises:
        InputError: the folder holds no checkpoint of this layout, or no optimizer where one is asked for.
        DamagedError: it holds none that can be read.
    """
    manifest = read_manifest(folder)
    sites = [[site.name, site.in_features, site.out_features] for site in layout.sites]
    if manifest.get("sites") != sites or manifest.get("lora", {}).get("rank") != layout.spec.rank:
        raise InputError(f"checkpoint {folder} was made for another base model or adapter shape")
    names = ["params", *(["adam_m", "adam_v"] if with_optimizer else [])]
    try:
        with safe_open(folder / _TENSORS, framework="pt") as file:
            missing = sorted(set(names) - set(file.keys()))
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
        if not torch.isfinite(tensor).all():
            raise InputError(f"checkpoint {folder}: {name} holds NaN or infinity")
    return {name: tensor.float() for name, tensor in tensors.items()}, int(manifest["num_steps"])


def read_spec(folder: Path) -> tuple[str, LoraSpec]:
    """Base model and adapter spec of a checkpoint folder.

    Raises:
        DamagedError: the folder holds no checkpoint.
    """
    manifest = read_manifest(folder)
    try:
        return str(manifest["base_model"]), LoraSpec(**manifest["lora"])
    except (KeyError, TypeError) as error:
        raise DamagedError(f"checkpoint {folder} has an unreadable {_MANIFEST}: {error}") from error


def read_num_steps(folder: Path) -> int:
    """Optimizer steps that a checkpoint with optimizer has taken; 0 for one without.

    Raises:
        DamagedError: the folder holds no checkpoint.
    """
    return int(read_manifest(folder)["num_steps"])


def is_checkpoint(folder: Path) -> bool:
    """Whether the folder looks like one that `write` made."""
    return (folder / _MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `write_manifest` wrote.

    Raises:
        DamagedError: the folder holds no checkpoint.
    """
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedError(f"{folder} holds no readable checkpoint: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT or "num_steps" not in manifest:
        raise DamagedError(f"{folder} holds no checkpoint of format {_FORMAT}")
    return manifest


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
