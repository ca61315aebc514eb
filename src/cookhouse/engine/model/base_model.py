"""A base model of `transformers`: frozen and shared by every adapter over it, or the copy of a run that trains it.

Legend: N packed positions of a pass, H hidden.
"""

import contextlib
import copy
import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from cookhouse.engine.contract import BaseModelInfo, LoraSpec
from cookhouse.engine.kernels.fused import fuse
from cookhouse.engine.lora.adapter_stack import can_group
from cookhouse.engine.lora.grouped import arrange
from cookhouse.engine.lora.lora import AdapterLayout, Adapters, LoraLinear, Routing, Segment, Segments, Weights
from cookhouse.engine.lora.sites import adapt, choose_sites
from cookhouse.engine.model.activations import Activations
from cookhouse.engine.model.attention import NAME as ATTENTION_NAME
from cookhouse.engine.model.attention import AttentionLayout, AttentionShapes, PackedLayout
from cookhouse.engine.model.delta import RECURRENT_KIND, use_layout
from cookhouse.engine.model.head import Head
from cookhouse.engine.model.logits import logit_rule
from cookhouse.engine.model.packed import PackedWeights
from cookhouse.engine.model.pretrained import (
    ATTENTION_KINDS,
    check_rank,
    describe,
    read_model,
    read_shapes,
    read_tokenizer,
    refusals,
)
from cookhouse.engine.model.published import Published
from cookhouse.engine.model.text_part import text_config
from cookhouse.errors import InputError, with_article
from cookhouse.models.base_files import BaseFiles, files_of_model

_CANNOT_RUN = "its layers cannot be run over packed positions"
_CHANGING_ROPES = ("dynamic", "longrope")


class BaseModel:
    """Weights, tokenizer and adapter sites of one base model."""

    def __init__(self, name: str, model: Any, tokenizer: Any, device: torch.device, *, is_frozen: bool = True) -> None:
        """A model that is not frozen carries no adapters: its own parameters may be trained."""
        self.name = name
        self.tokenizer = tokenizer
        self.device = device
        self.config = text_config(model.config)
        self.routing = Routing()
        self._model = model.requires_grad_(False).eval()
        output = model.get_output_embeddings()
        output_name = next(name for name, module in model.named_modules() if module is output)
        self.sites = adapt(model, output, self.routing) if is_frozen else ()
        self.routing.is_grouped = can_group(self.sites, device, output.weight.dtype)
        self._residual_dtype = fuse(model)
        use_layout(model)
        keep_frequencies(model)
        self.decoder: nn.Module = model.get_decoder()
        self.decoder_name = next(name for name, module in model.named_modules() if module is self.decoder)
        self.head = Head(model.get_output_embeddings(), output_name, logit_rule(model.config))
        self._embedding: nn.Module = model.get_input_embeddings()
        self.packed = PackedWeights(m.weight for m in model.modules() if isinstance(m, LoraLinear | nn.Linear))
        self.activations = Activations(self.decoder, device, self._one_sequence)
        seen = self._probe()
        self.cache_shape = seen.of(range(int(self.config.num_hidden_layers)))
        self.state_shapes = seen.state_shapes
        self.files: BaseFiles = {}
        """What its weights were read from."""
        self.published: Published | None = None
        """What a way of computing must agree with; see `Published`."""

    @classmethod
    def load(cls, name: str, device: torch.device, dtype: torch.dtype) -> "BaseModel":
        """Load an embedded name, a folder or a hub id.

        Raises:
            InputError: there is no such model here, or it is of a kind this engine cannot run.
        """
        tokenizer = read_tokenizer(name)
        files = files_of_model(name)
        model = read_model(name, dtype, device=device, attn_implementation="eager")
        base = cls.checked(name, model, tokenizer, device)
        base.files = files
        with refusals(name, "it says of no token that it ends a text"):
            _ = base.end_tokens
        return base

    @classmethod
    def checked(
        cls, name: str, model: Any, tokenizer: Any, device: torch.device, *, is_frozen: bool = True
    ) -> "BaseModel":
        """A model that was read with the attention of `transformers`, run a few tokens long in both ways.

        Raises:
            InputError: it is of a kind this engine cannot run, or computes otherwise.
        """
        with refusals(name, _CANNOT_RUN):
            _check_parts(model)
            published = Published.of(model)
            model.config._attn_implementation = ATTENTION_NAME
            base = cls(name, model, tokenizer, device, is_frozen=is_frozen)
            base.published = published
            base._check_packed(published)
            return base

    @classmethod
    def check_config(cls, name: str) -> None:
        """Refuse a model that `load` would refuse, as far as its config shows; no weights are read.

        Raises:
            InputError: as there.
        """
        model = read_shapes(name)
        model.config._attn_implementation = ATTENTION_NAME
        # Some layers read numbers, of which there are none.
        with refusals(name, _CANNOT_RUN), contextlib.suppress(NotImplementedError, RuntimeError):
            _check_parts(model)
            cls(name, model, None, torch.device("meta"))

    @cached_property
    def info(self) -> BaseModelInfo:
        """Facts about the model that clients may see."""
        return describe(self.name, self.config)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of weights and activations."""
        return self.head.dtype

    @property
    def state_bytes(self) -> int:
        """Bytes that the state of a sequence takes in its recurrent layers, whatever its length; 0 where there are
        none.
        """
        return sum(shape.num_bytes(self.dtype) for shape in self.state_shapes.values())

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a sample unless the request has an empty stop."""
        ends = GenerationConfig.from_model_config(self.config).eos_token_id
        generation = getattr(self._model, "generation_config", None)
        if generation is not None and generation.eos_token_id is not None:
            ends = generation.eos_token_id
        tokens = set(ends if isinstance(ends, list) else [ends])
        tokens.add(self.tokenizer.eos_token_id)
        return frozenset(int(token) for token in tokens if token is not None)

    @cached_property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The weights by name, tied ones once."""
        return dict(self._model.named_parameters())

    def frozen_copy(self, weights: Mapping[str, Tensor]) -> "BaseModel":
        """The same model with other weights by name, which it keeps."""
        replaced = {id(p): nn.Parameter(weights[name], requires_grad=False) for name, p in self.parameters.items()}
        return BaseModel(self.name, copy.deepcopy(self._model, replaced), self.tokenizer, self.device)

    def adapter_layout(self, spec: LoraSpec) -> AdapterLayout:
        """Sites and sizes of an adapter.

        Raises:
            InputError: the rank is out of range, or nothing would be trained.
        """
        check_rank(spec.rank, self.name, self.config)
        return choose_sites(self.sites, spec, self.files)

    @cached_property
    def pass_tokens(self) -> int:
        """Positions that a training pass has at most, unless one sequence is longer."""
        return self.activations.pass_tokens(self._hidden_bytes, self._smallest_adapter)

    def arrange(self, segments: Sequence[Segment], num_rows: int) -> Adapters:
        """The adapters of a pass over so many rows, in the form in which this device computes them best."""
        if not self.routing.is_grouped:
            return Segments(segments)
        return arrange(segments, num_rows, self.sites, self.device)

    def hidden(
        self,
        tokens_N: Tensor,
        positions_N: Tensor,
        layout: AttentionLayout,
        segments: Sequence[Segment] | Adapters,
        *,
        size: int | None = None,
    ) -> Tensor:
        """Final hidden states (N, H) of packed positions, before the output projection. What they keep for a backward
        is like that of `size` positions, N unless it is given.

        Inside `torch.enable_grad` the embeddings carry gradient, so that backward reaches every adapter; run it inside
        `routing` then, since a layer may compute its forward again, with adapters from `arrange`.
        """
        adapters = self.arrange(segments, len(tokens_N)) if isinstance(segments, Sequence) else segments
        if not torch.is_grad_enabled():
            return self._decode(tokens_N, positions_N, layout, adapters)
        with self.activations.planned(size or len(tokens_N), self._hidden_bytes, adapters.segments):
            return self._decode(tokens_N, positions_N, layout, adapters)

    def _decode(self, tokens_N: Tensor, positions_N: Tensor, layout: AttentionLayout, adapters: Adapters) -> Tensor:
        embeddings_1NH = self._embedding(tokens_N.unsqueeze(0)).to(self._residual_dtype)
        if torch.is_grad_enabled() and not embeddings_1NH.requires_grad:
            embeddings_1NH = embeddings_1NH.requires_grad_()
        with self.routing.use(adapters):
            output = self.decoder(
                inputs_embeds=embeddings_1NH, position_ids=positions_N.unsqueeze(0), use_cache=False, layout=layout
            )
        hidden_NH: Tensor = output.last_hidden_state[0]
        return hidden_NH

    def _smallest_adapter(self) -> Weights | None:
        """One of rank 1 at all sites, all zeros; None where there are none."""
        if not self.sites:
            return None
        layout = AdapterLayout(self.sites, LoraSpec(rank=1))
        return Weights(layout, torch.zeros(layout.num_parameters, dtype=self.dtype, device=self.device))

    @torch.no_grad()
    def _check_packed(self, published: Published) -> None:
        tokens_T = published.tokens_T
        first_T = tokens_T[1:]
        lengths = [len(first_T), len(tokens_T)]
        positions_N = torch.cat([torch.arange(length) for length in lengths]).to(self.device)
        hidden_NH = self.hidden(
            torch.cat([first_T, tokens_T]), positions_N, PackedLayout(lengths, self.device), Segments()
        )
        published.check_hidden("its hidden states, behind another sequence in a pass,", hidden_NH[len(first_T) :])
        published.check_logits(self.head.logits(published.scaled_TH, Segments()))

    @property
    def _hidden_bytes(self) -> int:
        return int(self.config.hidden_size) * self._residual_dtype.itemsize

    def _one_sequence(self, length: int, segments: Sequence[Segment]) -> Tensor:
        """Final hidden states of a sequence of zeros."""
        tokens_N = torch.zeros(length, dtype=torch.int64, device=self.device)
        positions_N = torch.arange(length, device=self.device)
        layout = PackedLayout([length], self.device)
        return self._decode(tokens_N, positions_N, layout, self.arrange(segments, length))

    @torch.no_grad()
    def _probe(self) -> AttentionShapes:
        """Record the shapes that each layer asks of a layout, in a pass over one token.

        Raises:
            InputError: some layer asks nothing of this engine, so that sequences would run into each other; or attends
                more than once, for which a cache has no place.
        """
        seen = AttentionShapes()
        zero_N = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.hidden(zero_N, zero_N, seen, ())
        num_layers = int(self.config.num_hidden_layers)
        missing = sorted(set(range(num_layers)) - set(seen.layers) - set(seen.state_shapes))
        if missing:
            raise InputError(f"layers {missing} attend in a way that this engine does not compute; use another model")
        if seen.repeated:
            raise InputError(
                f"layers {sorted(seen.repeated)} attend more than once for a token, which this engine does not "
                "compute; use another model"
            )
        if not seen.layers:
            raise InputError("no layer attends, and this engine needs one that does; use another model")
        kinds = getattr(self.config, "layer_types", None) or ()
        window, context = getattr(self.config, "sliding_window", None), self.config.max_position_embeddings
        if window and window < context and not kinds and not any(seen.windows.values()):
            raise InputError(
                f"its sliding_window is {window}, of which its layers do not tell this engine; use another model"
            )
        for layer, kind in enumerate(kinds):
            if (kind == RECURRENT_KIND) != (layer in seen.state_shapes):
                raise InputError(f"layer {layer} is {kind} but does not compute as such; use another model")
            if kind != RECURRENT_KIND and (seen.windows[layer] is not None) != ATTENTION_KINDS[kind]:
                raise InputError(f"layer {layer} is {kind} but its window is {seen.windows[layer]}")
        return seen


def keep_frequencies(model: nn.Module) -> None:
    """Have rotary embeddings keep the frequencies that they were made with.

    For some kinds `transformers` chooses them anew in each pass, by the largest position. Within the context of a model
    (`models.catalog.context`) the choice is always the same: LongRoPE has its short factors, and dynamic scaling does
    not scale yet. Some versions read the position back to the host for it, which waits for a GPU and keeps a step from
    being captured.
    """
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        names = kinds.values() if isinstance(kinds, dict) else [kinds]
        if any(isinstance(name, str) and any(kind in name for kind in _CHANGING_ROPES) for name in names):
            # The choice is made in a decorator of what computes.
            module.forward = MethodType(torch.no_grad()(inspect.unwrap(type(module).forward)), module)


def _check_parts(model: Any) -> None:
    """Refuse a model that is not a decoder and a linear output projection behind it."""
    output = model.get_output_embeddings()
    if not isinstance(output, nn.Linear):
        kind = with_article(type(output).__name__)
        raise InputError(f"its output projection is {kind} and not linear; use another model")
    if model.get_decoder() is output:
        raise InputError("what it calls its decoder is its output projection; use another model")
