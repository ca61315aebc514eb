"""Checkpoints for other libraries, and adapters from them: PEFT folders, and merged models of `transformers`.

Legend: I features in, O features out, R rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.device import choose_dtype
from cookhouse.engine.files import checkpoint
from cookhouse.engine.files.manifest import read_num_steps, read_spec
from cookhouse.engine.files.model_card import CARD, merged_card, peft_card
from cookhouse.engine.files.new_folder import new_folder
from cookhouse.engine.files.peft_folder import PeftAdapter, read_peft, write_peft
from cookhouse.engine.files.peft_sites import SiteMatrices, match_peft, names_here
from cookhouse.engine.lora.lora import AdapterLayout, LoraSite, Routing
from cookhouse.engine.lora.sites import adapt, choose_sites
from cookhouse.engine.model.pretrained import (
    auto_class,
    check_rank,
    is_packed,
    published_dtype,
    read_config,
    read_model,
    read_shapes,
    read_tokenizer,
)
from cookhouse.engine.model.text_part import text_config
from cookhouse.engine.train.full import FullLayout
from cookhouse.engine.train.full_checkpoint import read_full
from cookhouse.errors import InputError
from cookhouse.models.base_files import changes_between, files_of_model
from cookhouse.models.names import plain_name

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """Content of a checkpoint folder."""

    base_model: str
    lora: LoraSpec
    num_steps: int
    """Optimizer steps taken; 0 where the optimizer was not saved."""
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedModel:
    """Facts of a merged model that was written."""

    precision: str
    """As `torch` calls it."""
    is_untied: bool
    """True if its output projection has weights of its own, and that of the base model those of the embeddings."""


def inspect(folder: Path) -> CheckpointInfo:
    """Read the content of a checkpoint folder.

    Raises:
        InputError: it holds no checkpoint.
    """
    base_model, lora = read_spec(folder)
    return CheckpointInfo(
        base_model=base_model,
        lora=lora,
        num_steps=read_num_steps(folder),
        num_bytes=sum(file.stat().st_size for file in folder.iterdir()),
    )


def export_peft(
    folder: Path,
    output: Path,
    *,
    base_name: str | None = None,
    origin: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the adapter of a checkpoint folder as a PEFT folder that gives the same logits over its base model.

    The tokenizer and a model card lie next to it; `origin` is what the card says of where it came from. `base_name` is
    what others call the base model, which may lie in a folder of this machine; None: as the checkpoint has it.

    Raises:
        InputError: `folder` holds no checkpoint, its base model cannot be found, or `output` exists.
        OSError: the disk is full or not writable; nothing is left behind.
    """
    base_model, spec = read_spec(folder)
    if spec.rank == 0:
        raise InputError(f"checkpoint {folder} holds all weights and no adapter; export it merged")
    layout = _layout(folder, base_model, spec)
    tensors, _ = checkpoint.read(folder, layout, with_optimizer=False)
    tokenizer = read_tokenizer(base_model)
    with new_folder(output) as temporary:
        name = base_name or plain_name(base_model)
        write_peft(temporary, name, layout, tensors["params"])
        tokenizer.save_pretrained(temporary)
        (temporary / CARD).write_text(peft_card(name, spec, origin, auto_class(base_model)), encoding="utf-8")


def export_merged(
    folder: Path,
    output: Path,
    *,
    precision: str | None = None,
    base_name: str | None = None,
    origin: Mapping[str, str] = MappingProxyType({}),
) -> MergedModel:
    """Write a checkpoint's base model with the adapter added to its weights, as a folder that `transformers` loads.

    W + scaling · B A is computed in fp32 and rounded to `precision`, `float32` or `bfloat16`; None: to that of the base
    model. An output projection that shares its weights with the embeddings gets weights of its own where the adapter
    changes it: it does not change the embeddings. Parts of the model that are not of its text are written as they are.
    A checkpoint of all weights (rank 0) is written as it is, so rounded. Tokenizer, card and `base_name` as for
    `export_peft`.

    Raises:
        InputError: `folder` holds no checkpoint, its base model cannot be found, or `output` exists.
        OSError: the disk is full or not writable; nothing is left behind.
    """
    if output.exists():
        raise InputError(f"folder {output} exists; choose another name")
    asked = None if precision is None else choose_dtype(precision, _CPU)
    base_model, spec = read_spec(folder)
    dtype = asked or published_dtype(base_model)
    written = str(dtype).removeprefix("torch.")
    if spec.rank:
        model, is_untied = _merged(folder, base_model, spec, dtype)
    else:
        model, is_untied = _trained_in_full(folder, base_model, dtype), False
    tokenizer = read_tokenizer(base_model)
    if is_packed(base_model):
        model = _never_packed(model)
    with new_folder(output) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        name = base_name or plain_name(base_model)
        (temporary / CARD).write_text(merged_card(name, written, origin, auto_class(base_model)), encoding="utf-8")
    return MergedModel(precision=written, is_untied=is_untied)


def _trained_in_full(folder: Path, base_model: str, dtype: torch.dtype) -> Any:
    layout = FullLayout.of(read_shapes(base_model))
    flat = torch.empty(layout.num_parameters, dtype=dtype)
    read_full(folder, layout, {"params": flat})
    model = read_model(base_model, dtype, whole=True)
    for name, trained in layout.views(flat).items():
        model.get_parameter(name).data = trained
    return model


def _merged(folder: Path, base_model: str, spec: LoraSpec, dtype: torch.dtype) -> tuple[Any, bool]:
    """The model; and `MergedModel.is_untied`."""
    layout = _layout(folder, base_model, spec)
    tensors, _ = checkpoint.read(folder, layout, with_optimizer=False)
    model = read_model(base_model, dtype, whole=True).requires_grad_(False)
    was_tied = _is_tied(model)
    views = layout.views(tensors["params"])
    for site in layout.sites:
        a_RI, b_OR = views[site.name]
        if b_OR.any():
            _add(model, site, (b_OR @ a_RI).mul_(layout.scaling))
    return model, was_tied and not _is_tied(model)


def _is_tied(model: Any) -> bool:
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def import_peft(folder: Path, output: Path, *, base_model: str | None = None) -> tuple[str, LoraSpec]:
    """Write the adapter of a PEFT folder, or of one of external weights of the hosted service, as a checkpoint folder
    without optimizer; returns base model and spec.

    Parts of the model that the adapter leaves alone are not trained; within a part, a module that it leaves alone gets
    a fresh A and B zero. Another scaling than alpha 32 over the rank is multiplied into B, so that outputs are equal.

    Raises:
        InputError: `folder` holds no adapter of this base model that the engine computes, its rank is out of range, or
            `output` exists; or the weights of the base model have changed since it was exported.
        OSError: the disk is full or not writable; nothing is left behind.
    """
    adapter = read_peft(folder)
    name = base_model or adapter.base_model
    if name is None:
        raise InputError(f"{folder} does not name its base model; name it")
    sites = {site.name: site for site in _sites(name)}
    matrices = match_peft(folder, adapter, name, sites)
    files = files_of_model(name)
    if (changes := changes_between(adapter.base_files, files)) is not None:
        raise InputError(
            f"the weights of base model {name} have changed since {folder} was exported: {changes}. Put the old ones "
            "back, or export an adapter that was trained on the new ones"
        )
    rank = max(each.a.shape[-2] for each in matrices.values())
    check_rank(rank, name, read_config(name))
    parts = {sites[site].part for site in matrices}
    spec = LoraSpec(rank=rank, train_attn="attn" in parts, train_mlp="mlp" in parts, train_unembed="unembed" in parts)
    layout = choose_sites(tuple(sites.values()), spec, files)
    layout = layout.sharing([_shared(site, matrices.get(site.name)) for site in layout.sites])
    _check_base_weights(folder, name, adapter)
    checkpoint.write(output, name, layout, {"params": _flatten(folder, matrices, layout)}, 0)
    return name, spec


def _shared(site: LoraSite, matrices: SiteMatrices | None) -> str:
    """The matrix that experts of a site share: that of a new adapter, unless the matrices of an imported one differ."""
    if matrices is None or not site.shared:
        return site.shared
    stacked = matrices.a if site.shared == "A" else matrices.b
    return site.shared if bool((stacked == stacked[:1]).all()) else ""


def _flatten(folder: Path, matrices: Mapping[str, SiteMatrices], layout: AdapterLayout) -> Tensor:
    """A module of a lower rank than the largest has B zero in the rest."""
    params = layout.initial(_CPU)
    views = layout.views(params)
    for name, (a, b, scaling) in matrices.items():
        into_a, into_b = views[name]
        into_a[..., : a.shape[-2], :] = a[: len(into_a)] if a.dim() == 3 else a
        into_b[..., : b.shape[-1]] = (b[: len(into_b)] if b.dim() == 3 else b) * (scaling / layout.scaling)
    if not torch.isfinite(params).all():
        raise InputError(f"{folder}: lora_B, for a scaling of {layout.scaling:g}, is not finite")
    return params


def _check_base_weights(folder: Path, base_model: str, adapter: PeftAdapter) -> None:
    """Copies of frozen weights in a PEFT folder must say what the base model says."""
    if not adapter.base_weights:
        return
    model = read_model(base_model, torch.float32)
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters(remove_duplicate=False))
    for site, saved in adapter.base_weights.items():
        here = parameters.get(f"{names_here([site], modules)[site]}.weight")
        if site not in adapter.matrices or here is None or not torch.equal(here, saved):
            raise InputError(
                f"{folder} holds weights of {site} that are not those of {base_model}; only an adapter over frozen "
                "weights can be imported"
            )


def _layout(folder: Path, base_model: str, spec: LoraSpec) -> AdapterLayout:
    """The layout of a checkpoint folder."""
    return checkpoint.layout_of(folder, choose_sites(_sites(base_model), spec, files_of_model(base_model)))


def _sites(base_model: str) -> tuple[LoraSite, ...]:
    """Sites at which adapters of a base model attach; its weights are not read."""
    model = read_shapes(base_model)
    return adapt(model, model.get_output_embeddings(), Routing())


def _add(model: Any, site: LoraSite, delta: Tensor) -> None:
    """Add to the weights of a site in place."""
    parameter: nn.Parameter = model.get_parameter(site.parameter_name)
    if parameter is model.get_input_embeddings().weight:
        parameter = nn.Parameter(parameter.clone(), requires_grad=False)
        model.get_output_embeddings().weight = parameter
        model.config.tie_word_embeddings = False
        text_config(model.config).tie_word_embeddings = False
    weight = site.select(parameter)
    weight.copy_(weight.float() + delta)


def _never_packed(model: Any) -> Any:
    """The model without memory of how it was loaded: it would save its weights under the names of packed ones."""
    with torch.device("meta"):
        plain = type(model)._from_config(model.config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.generation_config = model.generation_config
    return plain
