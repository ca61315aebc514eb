"""Saved weights of two runs, compared to the bit."""

from collections.abc import Mapping, Sequence

import torch
from safetensors.torch import load_file

from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint

Weights = Mapping[str, torch.Tensor]


def saved_weights(stored: Sequence[StoredCheckpoint], model_id: str | None = None) -> Weights:
    """All that was saved, or of one model: by kind and name, file and tensor. States have their moments among them."""
    return {
        f"{kept.row.path.split('/', 3)[-1]} {file.name} {name}": tensor
        for kept in stored
        if model_id in {None, kept.row.model_id}
        for file in sorted(kept.folder.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def different_weights(ours: Weights, theirs: Weights) -> str | None:
    """In words, what differs; None: nothing."""
    assert theirs, "there is nothing to compare with"
    if missing := ours.keys() ^ theirs.keys():
        return f"only one of both runs has saved {sorted(missing)[0]}"
    names = [name for name in ours if not _are_same_bits(ours[name], theirs[name])]
    if not names:
        return None
    gap = max(float((ours[name].double() - theirs[name].double()).abs().max()) for name in names)
    return f"{len(names)} of {len(ours)} saved tensors differ, by up to {gap:.2g}; the first is {names[0]}"


def _are_same_bits(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    bits = [tensor.contiguous().view(torch.uint8) for tensor in (ours, theirs)]
    return torch.equal(*bits)
