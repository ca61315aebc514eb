"""Models of `transformers` read from an embedded name, a folder or a hub id.

Weights come from safetensors alone, in one file or in shards with an index, and no code next to them is run. Weights
packed in a format that adapters cannot be trained over (MXFP4 of gpt-oss, FP8 of DeepSeek-V3) are unpacked on the way.
Of a model that takes images as well, what is read and what callers see is its text part.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoConfig, AutoTokenizer, FineGrainedFP8Config, Mxfp4Config
from transformers.utils import is_accelerate_available

from cookhouse.assets import resolve_model
from cookhouse.engine.contract import BaseModelInfo
from cookhouse.engine.model import text_part
from cookhouse.engine.model.delta import MODEL_TYPES, RECURRENT_KIND
from cookhouse.engine.model.logits import logit_rule
from cookhouse.engine.shortage import is_shortage
from cookhouse.errors import InputError
from cookhouse.models.catalog.context import context_of_config

_T = TypeVar("_T")
_UNPACKED = {"mxfp4": Mxfp4Config, "fp8": FineGrainedFP8Config}
_SIZES = {
    "vocab_size": 2**24,
    "hidden_size": 2**20,
    "num_hidden_layers": 2**12,
    "max_position_embeddings": 2**31 - 1,
}
"""What every config must say, and the most that it may: layers are made one by one before anything is known of them."""
_INDEX, _ADAPTER = "model.safetensors.index.json", "adapter_config.json"
_MAX_LORA_RANK = 512
_HOST = torch.device("cpu")
ATTENTION_KINDS = {"full_attention": False, "sliding_attention": True}
"""Kinds of layers this engine computes, and whether they have a window."""


def read_config(name: str) -> Any:
    """The `transformers` config of the model's text part.

    Raises:
        InputError: there is no such model here, or it is of a kind this engine cannot run.
    """
    return text_part.text_config(_read_whole_config(name))


def read_tokenizer(name: str) -> Any:
    """The model's tokenizer.

    Raises:
        InputError: there is none that can be read.
    """
    return _read(name, partial(AutoTokenizer.from_pretrained, trust_remote_code=False))


def read_model(
    name: str, dtype: torch.dtype, *, device: torch.device = _HOST, whole: bool = False, **options: Any
) -> Any:
    """The model on a device, every weight of its text part read, or `whole`; `options` go to `from_pretrained`.

    Each weight goes from its file straight to a GPU. The host holds all of them first where they are unpacked, and
    without the package `accelerate`, by which `transformers` does it.

    Raises:
        InputError: it cannot be run, or its files cannot be read or do not hold exactly the weights of its config.
    """
    config = _read_whole_config(name)
    _check_folder(name)
    method = _quantization(config)
    if method is not None:
        options["quantization_config"] = _UNPACKED[method](dequantize=True)
    elif device != _HOST and is_accelerate_available():
        options["device_map"] = {"": device}
    model, report = _read(
        name,
        lambda source: text_part.model_class(config, whole=whole).from_pretrained(
            source,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, by name
            **options,
        ),
    )
    absent = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if absent:
        raise InputError(
            f"base model {name!r}: its safetensors hold no {', '.join(absent[:3])} in the shape that config.json asks "
            "for; get the files again"
        )
    for parameter in model.parameters() if method is not None else ():
        # What is unpacked may come in the precision that it was published in.
        if parameter.is_floating_point() and parameter.dtype.itemsize < dtype.itemsize:
            parameter.data = parameter.data.to(dtype)
    return model.to(device)


def published_dtype(name: str) -> torch.dtype:
    """Precision of the weights as published, once unpacked, by config.json; fp32, which rounds nothing, where that says
    none of ours.

    Raises:
        InputError: as `read_config`.
    """
    config = _read_whole_config(name)
    said = getattr(config, "dtype", None) or getattr(text_part.text_config(config), "dtype", None)
    return said if said in (torch.bfloat16, torch.float16) else torch.float32


def read_shapes(name: str) -> Any:
    """The model's text part on the meta device: every weight by name and shape, and none of them read.

    Raises:
        InputError: as `read_config`.
    """
    config = _read_whole_config(name)
    with refusals(name, "transformers cannot build it from its config.json"):
        return text_part.empty_model(config)


def auto_class(name: str) -> str:
    """The class of `transformers` that loads the whole model."""
    return text_part.auto_class(_read_whole_config(name))


def is_packed(name: str) -> bool:
    """True if its weights are unpacked when they are read."""
    return _quantization(_read_whole_config(name)) is not None


def describe(name: str, config: Any) -> BaseModelInfo:
    """Facts about a model that clients may see, read without its weights."""
    source = resolve_model(name)
    return BaseModelInfo(
        name=name,
        tokenizer_id=str(Path(source).resolve()) if Path(source).is_dir() else source,
        architecture=str(config.model_type),
        vocab_size=int(config.vocab_size),
        max_context_tokens=_context_tokens(config),
        max_lora_rank=max_lora_rank(config),
    )


def max_lora_rank(config: Any) -> int:
    """The largest rank that an adapter of a base model may have."""
    return min(int(config.hidden_size), _MAX_LORA_RANK)


def check_rank(rank: int, name: str, config: Any) -> None:
    """Refuse an adapter's rank that a base model does not take."""
    largest = max_lora_rank(config)
    if not 1 <= rank <= largest:
        raise InputError(f"LoRA rank is {rank}; {name} takes 1 to {largest}")


def num_weight_bytes(name: str, dtype: torch.dtype) -> int:
    """Memory that the weights of a model take; none of them is read."""
    return dtype.itemsize * num_parameters(name)


def num_parameters(name: str) -> int:
    """Weights of a model, tied ones once; none of them is read."""
    return sum(parameter.numel() for parameter in read_shapes(name).parameters())


@contextlib.contextmanager
def refusals(name: str, what: str) -> Iterator[None]:
    """Turn errors within, while a model is tried, into a refusal of it by name. Its files are a stranger's, and the
    code that reads and runs them is of other libraries: they may raise anything.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"base model {name!r}: {error}") from error
    except Exception as error:
        if is_shortage(error):
            raise
        raise InputError(f"base model {name!r}: {what} ({first_line(error)}); use another model") from error


def first_line(error: Exception) -> str:
    """An error of another library in a message of ours."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


def _read_whole_config(name: str) -> Any:
    config = _read(name, partial(AutoConfig.from_pretrained, trust_remote_code=False))
    with refusals(name, "its config.json cannot be used"):
        _check(config)
    return config


def _read(name: str, read: Callable[[str], _T]) -> _T:
    try:
        return read(resolve_model(name))
    except InputError:
        raise
    except Exception as error:  # see `refusals`; tokenizers, for one, raises nothing more special
        if is_shortage(error):
            raise
        is_told = isinstance(error, OSError | ValueError) and str(error).strip()
        reason = str(error).strip().splitlines()[0] if is_told else first_line(error)
        raise InputError(
            f"cannot load base model {name!r}: {reason}; give cookhouse/tiny, a folder with config.json, tokenizer and "
            "safetensors, or a hub id that this machine can reach"
        ) from error


def _check_folder(name: str) -> None:
    """Refuse what `transformers` would read besides a folder's weights: shards in other folders, and an adapter."""
    folder = Path(resolve_model(name))
    if (folder / _ADAPTER).is_file():
        raise InputError(
            f"base model {name!r} has an adapter beside it ({_ADAPTER}); move that to a folder of its own, from which "
            "`cookhouse checkpoints import` reads it"
        )
    if not (folder / _INDEX).is_file():
        return
    with refusals(name, f"{_INDEX} cannot be read"):
        for file in set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()):
            if file != Path(file).name:
                raise InputError(f"{_INDEX} names {file[:80]!r}; weights are read from files beside it alone")


def _quantization(config: Any) -> str | None:
    """Of a whole model or of its text part."""
    parts = (config, text_part.text_config(config))
    packed = next((found for part in parts if (found := getattr(part, "quantization_config", None)) is not None), None)
    if packed is None:
        return None
    return str(packed["quant_method"] if isinstance(packed, dict) else packed.quant_method)


def _context_tokens(config: Any) -> int:
    # Some families have another name for it in their config.json, which their config knows.
    named = {"max_position_embeddings": config.max_position_embeddings}
    found = context_of_config(config.to_dict() | named)
    if found is None:
        raise InputError(
            "its config has a long_factor, and no original_max_position_embeddings that says for which length; use "
            "another model"
        )
    return found


def _check(config: Any) -> None:
    text_part.model_class(config)
    text = text_part.text_config(config)
    method = _quantization(config)
    if method is not None and method not in _UNPACKED:
        raise InputError(
            f"its weights are quantized by {method}; use {' or '.join(_UNPACKED)}, or weights that are not"
        )
    unknown = [size for size in _SIZES if type(getattr(text, size, None)) is not int]
    if unknown:
        raise InputError(f"its config names no {' and no '.join(unknown)}, which this engine needs; use another model")
    for size, most in _SIZES.items():
        if not 1 <= getattr(text, size) <= most:
            raise InputError(f"its {size} is {getattr(text, size):.6g}; it must be 1 to {most}")
    logit_rule(config)
    _context_tokens(text)
    kinds = [*ATTENTION_KINDS, *([RECURRENT_KIND] if text.model_type in MODEL_TYPES else [])]
    for kind in getattr(text, "layer_types", None) or ():
        if kind not in kinds:
            raise InputError(f"it has layers of kind {kind}; this engine computes {' and '.join(kinds)}")
