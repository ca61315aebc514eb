"""Adapters in the format of the `peft` library: a folder with `adapter_config.json` and `adapter_model.safetensors`.

PEFT computes y = W x + (lora_alpha / r) · B A x with one pair of matrices per adapted module, as this engine does.

Legend: I features in, O features out, R rank.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cookhouse.assets import TINY_MODEL, resolve_model
from cookhouse.engine.files.peft_experts import expert_parameters
from cookhouse.engine.lora.lora import ALPHA, AdapterLayout
from cookhouse.errors import InputError
from cookhouse.models.base_files import BaseFiles

_CONFIG = "adapter_config.json"
_TENSORS = "adapter_model.safetensors"
_PICKLE = "adapter_model.bin"
_BASE_FILES = "cookhouse_base_files"
"""In the metadata of the tensors' file, which PEFT does not read."""
_PREFIX = "base_model.model."
_KEY = re.compile(rf"{re.escape(_PREFIX)}(?P<site>[\w.]+)\.(?P<matrix>lora_A|lora_B|base_layer)\.weight", re.ASCII)
_DTYPES = ("F32", "F16", "BF16")
_MAX_CONFIG_BYTES = 2**20
_MAX_NAMED = 3
_OF_EXPERTS = (".gate_proj", ".up_proj", ".down_proj")

_HARMLESS_FIELDS = frozenset(
    (
        "alpha_pattern",
        "auto_mapping",
        "base_model_name_or_path",
        "bias",
        "eva_config",
        "exclude_modules",
        "inference_mode",
        "init_lora_weights",
        "layers_pattern",
        "layers_to_transform",
        "lora_alpha",
        "lora_dropout",
        "megatron_core",
        "peft_type",
        "peft_version",
        "qalora_group_size",
        "r",
        "rank_pattern",
        "runtime_config",
        "target_modules",
        "target_parameters",
        "task_type",
        "use_rslora",
    )
)
"""Fields of the config that say how an adapter was trained, that the tensors say again, or that are read below. Any
other field that is set changes what the adapter computes."""
_ADAPTER_ONLY_INITS = (None, True, False, "gaussian", "eva", "orthogonal")
"""Ways to start an adapter that leave the base model's own weights as they are."""
_T = TypeVar("_T", int, float)
_MAX_ALPHA = 2**20
_MAX_PATTERNS = 1024
_PATTERN = re.compile(r"\^?(\.\*)?([\w.]|\\\.)+", re.ASCII)
"""Names or ends of them, as PEFT's users write them. It takes any regular expression; a stranger's may take forever."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of all modules, and of some by patterns of their names, as PEFT's `get_pattern_key` finds them."""

    rank: int
    alpha: float
    is_root: bool
    """rslora: https://arxiv.org/abs/2312.03732, equation 7."""
    ranks: Sequence[tuple[re.Pattern[str], int]]
    alphas: Sequence[tuple[re.Pattern[str], float]]

    @classmethod
    def of(cls, path: Path, config: Mapping[str, Any]) -> "Ranks":
        """Read from a config, of which nothing is checked.

        Raises:
            InputError: there is no rank, or no scaling, that this engine can use; the message names `path`.
        """
        rank, alpha = config.get("r"), config.get("lora_alpha")
        ranks, alphas = (_patterns(path, config, field) for field in ("rank_pattern", "alpha_pattern"))
        for where, value in (("r", rank), *((f"rank_pattern of {name}", value) for name, value in ranks.items())):
            if type(value) is not int or value < 1:
                raise InputError(f"{path}: {where} is {value!r}; it must be a positive integer")
        for where, value in (
            ("lora_alpha", alpha),
            *((f"alpha_pattern of {name}", value) for name, value in alphas.items()),
        ):
            if type(value) not in (int, float) or not 0 < value <= _MAX_ALPHA:
                raise InputError(f"{path}: {where} is {value!r}; it must be above 0, up to {_MAX_ALPHA}")
        is_root = bool(config.get("use_rslora"))
        # Numbers: what is none has been refused.
        return cls(rank, alpha, is_root, _compiled(ranks), _compiled(alphas))  # type: ignore[arg-type]

    def rank_of(self, name: str) -> int:
        """The rank of a module or parameter."""
        return _find(self.ranks, name, self.rank)

    def scaling(self, name: str) -> float:
        """The factor of B A x of a module or parameter."""
        rank, alpha = self.rank_of(name), _find(self.alphas, name, self.alpha)
        return alpha / math.sqrt(rank) if self.is_root else alpha / rank


@dataclass(frozen=True, slots=True, kw_only=True)
class PeftAdapter:
    """Content of a PEFT folder."""

    base_model: str | None
    """As this engine names it; None if the folder does not say."""
    ranks: Ranks
    parameters: Sequence[str]
    """Ends of the names of parameters that are adapted as such."""
    matrices: Mapping[str, tuple[Tensor, Tensor]]
    """fp32 A (R, I) and B (O, R) by the name of their module, or of what PEFT wraps a parameter in; in external weights
    of the hosted service those of experts are stacked."""
    base_files: BaseFiles
    """Of the base model, of a folder that `write_peft` made; else empty."""
    base_weights: Mapping[str, Tensor]
    """Copies of frozen weights, as PEFT saves them for an adapted output projection, by the name of their module."""


def write_peft(folder: Path, base_model: str, layout: AdapterLayout, params: Tensor) -> None:
    """Write the adapter that the flat tensor `params` holds into a folder, in fp32; its config names `base_model` so.

    Raises:
        OSError: the disk is full or not writable.
    """
    views = layout.views(params.detach().cpu().float())
    linear = [site for site in layout.sites if site.num_experts is None]
    stacked = expert_parameters(layout.sites)
    tensors: dict[str, Tensor] = {}
    for site in linear:
        tensors |= _tensors(site.name, *views[site.name])
    for parameter in stacked:
        tensors |= _tensors(parameter.wrapper, *parameter.join(views))
    # Of a model with experts PEFT takes a module that is called as a projection of theirs for one.
    as_parameters = [site for site in linear if stacked and site.name.endswith(_OF_EXPERTS)]
    modules = sorted({site.name.rpartition(".")[2] for site in linear if site not in as_parameters})
    parameters = {".".join(site.parameter_name.split(".")[-3:]) for site in as_parameters}
    joined = {parameter.target: len(parameter.sites) for parameter in stacked}
    rank, alpha = layout.spec.rank, int(ALPHA)
    config = {
        "alpha_pattern": {target: number * alpha for target, number in joined.items() if number > 1},
        "base_model_name_or_path": base_model,
        "bias": "none",
        "exclude_modules": _elsewhere(layout),
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": {target: number * rank for target, number in joined.items() if number > 1},
        "target_modules": modules,
        "target_parameters": sorted({*parameters, *joined}) or None,
        "task_type": "CAUSAL_LM",
    }
    save_file(tensors, folder / _TENSORS, metadata={"format": "pt", _BASE_FILES: json.dumps(dict(layout.base_files))})
    (folder / _CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")


def _tensors(module: str, a_RI: Tensor, b_OR: Tensor) -> dict[str, Tensor]:
    return {
        f"{_PREFIX}{module}.lora_A.weight": a_RI.contiguous().clone(),
        f"{_PREFIX}{module}.lora_B.weight": b_OR.contiguous().clone(),
    }


def _elsewhere(layout: AdapterLayout) -> str | None:
    """A pattern of the modules besides the text part, where there may be such: their last names are the same."""
    layers = {site.name.partition(".layers.")[0] for site in layout.sites if ".layers." in site.name}
    parts = [re.escape(name) for name in sorted(layers) if "." in name]
    return rf"(?!({'|'.join(parts)}|lm_head)(\.|$)).*" if parts else None


def read_peft(folder: Path) -> PeftAdapter:
    """Read and check the content of a PEFT folder; nothing is unpickled.

    Raises:
        InputError: it is not a LoRA of linear layers in safetensors, or has features that this engine does not compute.
    """
    config = _read_config(folder)
    ranks = Ranks.of(folder / _CONFIG, config)
    tensors, base_files = _read_tensors(folder)
    matrices = {}
    for site in sorted({site for site, matrix in tensors if matrix != "base_layer"}):
        pair = tensors.get((site, "lora_A")), tensors.get((site, "lora_B"))
        if pair[0] is None or pair[1] is None:
            raise InputError(f"{folder / _TENSORS}: {site} has one of lora_A and lora_B; both are needed")
        matrices[site] = pair[0], pair[1]
    if not matrices:
        raise InputError(f"{folder / _TENSORS} holds no adapter")
    base_model = config.get("base_model_name_or_path")
    return PeftAdapter(
        base_model=_known_name(base_model) if isinstance(base_model, str) and base_model else None,
        ranks=ranks,
        parameters=_parameters(folder / _CONFIG, config),
        matrices=matrices,
        base_files=base_files,
        base_weights={site: tensor for (site, matrix), tensor in tensors.items() if matrix == "base_layer"},
    )


def _parameters(path: Path, config: Mapping[str, Any]) -> Sequence[str]:
    names = config.get("target_parameters") or ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: target_parameters is {names!r:.80}; it must be a list of names")
    return tuple(names)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIG
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise InputError(f"{path} is larger than {_MAX_CONFIG_BYTES} bytes; this is no adapter's config")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # no UTF-8, no JSON, or a number of too many digits
        raise InputError(f"{folder} holds no readable PEFT adapter: {error}") from error
    # External weights that `peft` could not load whole have no type: their names and shapes say what they are.
    if not isinstance(config, dict) or config.get("peft_type", "LORA") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else None
        raise InputError(f"{path}: peft_type is {kind!r}; only LORA can be imported")
    refused = sorted(name for name, value in config.items() if value and name not in _HARMLESS_FIELDS)
    if config.get("bias", "none") != "none":
        refused.append("bias")
    if config.get("init_lora_weights") not in _ADAPTER_ONLY_INITS:
        refused.append("init_lora_weights")
    if refused:
        settings = ", ".join(f"{name}={config[name]!r}"[:80] for name in refused[:_MAX_NAMED])
        raise InputError(
            f"{path} sets {settings}, which this engine does not compute; import a plain LoRA of linear layers"
        )
    return config


def _read_tensors(folder: Path) -> tuple[dict[tuple[str, str], Tensor], BaseFiles]:
    """fp32 matrices by module and kind, and the files of the base model, if they are given."""
    path = folder / _TENSORS
    if not path.exists() and (folder / _PICKLE).exists():
        raise InputError(
            f"{folder} has its weights in {_PICKLE}, a pickle, which may run code when it is read; save the adapter as "
            f"{_TENSORS} (PEFT's save_pretrained does by default)"
        )
    try:
        with safe_open(path, framework="pt") as file:
            keys = {key: _KEY.fullmatch(key) for key in sorted(file.keys())}
            _check_keys(path, keys)
            matrices = {
                (found["site"], found["matrix"]): _read_matrix(file, path, key) for key, found in keys.items() if found
            }
            return matrices, _read_base_files((file.metadata() or {}).get(_BASE_FILES, "{}"))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _read_base_files(text: str) -> BaseFiles:
    try:
        files = json.loads(text)
    except (ValueError, RecursionError):  # somebody else's
        return {}
    return {name: str(digest) for name, digest in files.items()} if isinstance(files, dict) else {}


def _check_keys(path: Path, keys: Mapping[str, re.Match[str] | None]) -> None:
    unknown = [key for key, found in keys.items() if found is None]
    if unknown:
        raise InputError(
            f"{path} holds {first_names(unknown)}, which is no matrix of a LoRA of a linear layer; only "
            f"{_PREFIX}<module>.lora_A and lora_B can be imported"
        )


def first_names(names: Sequence[str]) -> str:
    """Some names for a message, and how many there are besides."""
    shown = ", ".join(name[:120] for name in names[:_MAX_NAMED])
    return f"{shown} and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else shown


def _read_matrix(file: Any, path: Path, key: str) -> Tensor:
    """One matrix; its shape and type are read first, so that nothing else is allocated."""
    header = file.get_slice(key)
    if len(header.get_shape()) not in (2, 3) or header.get_dtype() not in _DTYPES:
        raise InputError(
            f"{path}: {key} is {header.get_dtype()} of shape {tuple(header.get_shape())}; "
            f"it must be a matrix of {', '.join(_DTYPES)}, or a stack of those of experts"
        )
    matrix: Tensor = file.get_tensor(key).float()
    if not torch.isfinite(matrix).all():
        raise InputError(f"{path}: {key} holds NaN or infinity")
    return matrix


def _known_name(base_model: str) -> str:
    """The embedded model is written as its folder, where `transformers` finds it."""
    return TINY_MODEL if base_model == resolve_model(TINY_MODEL) else base_model


def _patterns(path: Path, config: Mapping[str, Any], field: str) -> dict[str, Any]:
    given = config.get(field) or {}
    if not isinstance(given, dict) or len(given) > _MAX_PATTERNS:
        raise InputError(f"{path}: {field} is not an object of at most {_MAX_PATTERNS} names")
    for key in given:
        if not _PATTERN.fullmatch(key):
            raise InputError(f"{path}: {field} has {key[:80]!r}; use names of modules, or ends of them")
    return given


def _compiled(values: Mapping[str, _T]) -> list[tuple[re.Pattern[str], _T]]:
    return [(re.compile(rf"(.*\.)?({key})$"), value) for key, value in values.items()]


def _find(values: Sequence[tuple[re.Pattern[str], _T]], name: str, default: _T) -> _T:
    return next((value for pattern, value in values if pattern.match(name)), default)
