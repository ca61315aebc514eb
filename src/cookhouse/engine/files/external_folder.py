"""Adapters in the form of the hosted service's external weights, which the tools of tinker-cookbook read.

The files are those of a PEFT folder, and so are the names of matrices, but for three kinds. In a model that takes
images, layers are called `model.layers`, not `model.language_model.layers`. The output projection `lm_head` is called
`model.unembed_tokens`. A projection of all experts of a layer is one pair of stacked matrices, A (E, R, I) and B (E, O,
R), called w1 (gate), w3 (up) or w2 (down); what experts share is stacked once, (1, …). By these the tools find the
weights of the base model (`tinker_cookbook.weights`: `build_name_remaps` in `_merge_utils.py`, `MergeProfile` in
`_merge.py`).

An adapter that has none of these is a PEFT folder as well, and its config says so. `peft` would leave out what it does
not know by name, and say nothing.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from cookhouse.engine.lora.lora import ALPHA, AdapterLayout, LoraSite

_PREFIX = "base_model.model."
OUTPUT, _UNEMBED = "lm_head", "model.unembed_tokens"
_TEXT_PART, _MODEL = "model.language_model.", "model."
_EXPERTS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


def write_external(folder: Path, base_model: str, layout: AdapterLayout, params: Tensor) -> None:
    """Write the adapter that the flat tensor `params` holds into a folder, in fp32; its config names `base_model` so.

    Raises:
        OSError: the disk is full or not writable.
    """
    names = {site.name: _external_name(site) for site in layout.sites}
    tensors = {}
    for site, (a, b) in layout.views(params.detach().cpu().float()).items():
        tensors[f"{_PREFIX}{names[site]}.lora_A.weight"] = a.clone()
        tensors[f"{_PREFIX}{names[site]}.lora_B.weight"] = b.clone()
    config: dict[str, Any] = {
        "base_model_name_or_path": base_model,
        "lora_alpha": int(ALPHA),
        "r": layout.spec.rank,
    }
    if all(site == name for site, name in names.items()):
        modules = sorted({name.rpartition(".")[2] for name in names})
        config |= {"peft_type": "LORA", "target_modules": modules, "task_type": "CAUSAL_LM", "inference_mode": True}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def own_name(site: LoraSite) -> str:
    """The name of a site's module in external weights, within the whole of a model that takes images."""
    if site.name == OUTPUT:
        return _UNEMBED
    if site.num_experts is None:
        return site.name
    parent, _, child = site.name.rpartition(".")
    return f"{parent}.{_EXPERTS[child]}"


def _external_name(site: LoraSite) -> str:
    name = own_name(site)
    return _MODEL + name.removeprefix(_TEXT_PART) if name.startswith(_TEXT_PART) else name
