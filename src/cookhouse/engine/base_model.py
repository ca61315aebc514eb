"""A frozen base model of `transformers`, shared by every adapter over it."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from cookhouse.assets import resolve_model
from cookhouse.engine.attention import NAME as ATTENTION_NAME
from cookhouse.engine.attention import AttentionLayout
from cookhouse.engine.contract import BaseModelInfo, LoraSpec
from cookhouse.engine.head import Head
from cookhouse.engine.lora import AdapterLayout, LoraLinear, LoraSite, Routing, Segment
from cookhouse.errors import InputError

_log = logging.getLogger(__name__)
_UNSUPPORTED_CONFIG = ("final_logit_softcapping", "attn_logit_softcapping", "logit_scale", "logits_scaling")
"""Options that change logits outside the modules this engine calls."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What one position of one layer needs in a key-value cache."""

    num_layers: int
    num_kv_heads: int
    head_dim: int


class BaseModel:
    """Weights, tokenizer and adapter sites of one base model."""

    def __init__(self, name: str, model: Any, tokenizer: Any, device: torch.device) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.device = device
        self.config = model.config
        self.routing = Routing()
        self._model = model.requires_grad_(False).eval()
        self._sites = tuple(_adapt(model, self.routing))
        self.decoder: nn.Module = model.get_decoder()
        self.decoder_name = next(name for name, module in model.named_modules() if module is self.decoder)
        output = model.get_output_embeddings()
        output_name = next(name for name, module in model.named_modules() if module is output)
        self.head = Head(output, output_name)
        self._embedding: nn.Module = model.get_input_embeddings()

    @classmethod
    def load(cls, name: str, device: torch.device, dtype: torch.dtype) -> "BaseModel":
        """Load an embedded name, a folder or a hub id. Only safetensors are read, and no remote code is run.

        Raises:
            InputError: there is no such model here, or it is of a kind this engine cannot run.
        """
        source = resolve_model(name)
        try:
            tokenizer = AutoTokenizer.from_pretrained(source)
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype, attn_implementation=ATTENTION_NAME, use_safetensors=True
            )
        except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
            raise InputError(
                f"cannot load base model {name!r}: {_first_line(error)}; give cookhouse/tiny, a folder with "
                "config.json, tokenizer and safetensors, or a hub id that this machine can reach"
            ) from error
        _check_supported(name, model)
        return cls(name, model.to(device), tokenizer, device)

    @cached_property
    def info(self) -> BaseModelInfo:
        """What a client may know of the model."""
        source = resolve_model(self.name)
        return BaseModelInfo(
            name=self.name,
            tokenizer_id=str(Path(source).resolve()) if Path(source).is_dir() else source,
            architecture=str(self.config.model_type),
            vocab_size=self.head.vocab_size,
            max_context_tokens=int(self.config.max_position_embeddings),
        )

    @property
    def dtype(self) -> torch.dtype:
        """Precision of weights and activations."""
        return self.head.dtype

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a sample when the request names no stop."""
        ends = GenerationConfig.from_model_config(self.config).eos_token_id
        generation = getattr(self._model, "generation_config", None)
        if generation is not None and generation.eos_token_id is not None:
            ends = generation.eos_token_id
        tokens = set(ends if isinstance(ends, list) else [ends])
        tokens.add(self.tokenizer.eos_token_id)
        return frozenset(int(token) for token in tokens if token is not None)

    @cached_property
    def cache_shape(self) -> CacheShape:
        """Size of the keys and values of one position."""
        heads = self.config.num_attention_heads
        return CacheShape(
            num_layers=self.config.num_hidden_layers,
            num_kv_heads=getattr(self.config, "num_key_value_heads", None) or heads,
            head_dim=getattr(self.config, "head_dim", None) or self.config.hidden_size // heads,
        )

    def adapter_layout(self, spec: LoraSpec) -> AdapterLayout:
        """Sites and sizes of an adapter.

        Raises:
            InputError: the rank is out of range, or nothing would be trained.
        """
        parts = {"attn": spec.train_attn, "mlp": spec.train_mlp, "unembed": spec.train_unembed}
        if not any(parts.values()):
            raise InputError("train_attn, train_mlp and train_unembed are all false; at least one must be true")
        largest = min(int(self.config.hidden_size), 512)
        if not 1 <= spec.rank <= largest:
            raise InputError(f"LoRA rank is {spec.rank}; {self.name} takes 1 to {largest}")
        return AdapterLayout(tuple(site for site in self._sites if parts[site.part]), spec)

    def hidden(
        self, tokens_N: Tensor, positions_N: Tensor, layout: AttentionLayout, segments: Sequence[Segment]
    ) -> Tensor:
        """Final hidden states (N, H) of packed positions, before the output projection.

        Inside `torch.enable_grad` the embeddings carry gradient, so that backward reaches every adapter; run it inside
        `routing` then, since a checkpointed layer computes its forward again.
        """
        embeddings_1NH = self._embedding(tokens_N.unsqueeze(0))
        if torch.is_grad_enabled():
            embeddings_1NH = embeddings_1NH.detach().requires_grad_()
        with self.routing.use(segments):
            output = self.decoder(
                inputs_embeds=embeddings_1NH, position_ids=positions_N.unsqueeze(0), use_cache=False, layout=layout
            )
        hidden_NH: Tensor = output.last_hidden_state[0]
        return hidden_NH


def _adapt(model: nn.Module, routing: Routing) -> list[LoraSite]:
    """Replace every linear layer of attention, MLP and output by one that carries adapters; return the sites."""
    sites = []
    for name, module in list(model.named_modules()):
        part = _part(name)
        if part is None or not isinstance(module, nn.Linear):
            continue
        site = LoraSite(name=name, part=part, in_features=module.in_features, out_features=module.out_features)
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, LoraLinear(module, site, routing))
        sites.append(site)
    return sites


def _part(name: str) -> str | None:
    """Which part of a model a linear layer belongs to by its name; None for one that is not adapted (a router)."""
    parents, _, child = name.rpartition(".")
    if child in ("gate", "router"):
        return None
    if name == "lm_head":
        return "unembed"
    if "self_attn" in parents:
        return "attn"
    return "mlp" if "mlp" in parents else None


def _check_supported(name: str, model: Any) -> None:
    for option in _UNSUPPORTED_CONFIG:
        if getattr(model.config, option, None) not in (None, 1, 1.0):
            raise InputError(
                f"base model {name!r} uses {option}, which this engine does not compute; use another model"
            )
    for path, module in model.named_modules():
        stacked = [key for key, parameter in module.named_parameters(recurse=False) if parameter.dim() == 3]
        if stacked:
            raise InputError(
                f"base model {name!r} keeps {path}.{stacked[0]} as one tensor for all experts; such a module "
                "cannot carry an adapter: use a dense model"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
