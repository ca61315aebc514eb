"""One fused pass through the compiled kernel: the structures of model.h, filled from torch tensors.

Legend: N rows, B of them whose logits are wanted, D features per head, V vocabulary, H hidden,
P positions of a table.
"""

import ctypes
import itertools
from collections.abc import Iterable, Sequence
from ctypes import POINTER, Structure, c_float, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from cookhouse.engine.kernels.cpu.decode.build import library
from cookhouse.engine.lora.lora import Segment, Weights
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.packed import pack
from cookhouse.engine.sampler.cache import KeyValueCache
from cookhouse.engine.sampler.scheduler import Piece

_BLOCK_SIZE = 16
_LANES = 16
_PACKED_ADAPTER_BYTES = 2**26
"""Those of an adapter: there may be many."""
_ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3"})
_PROJECTIONS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


class _Linear(Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("out", c_int64), ("in_", c_int64), ("is_packed", c_int64))


class _Layer(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("input_norm", "attention_norm", "q_norm", "k_norm")),
        *((name, _Linear) for name in ("q", "k", "v", "o", "gate", "up", "down")),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("window", c_int64),
    )


class _Model(Structure):
    _fields_ = (
        *((name, c_int64) for name in ("num_layers", "hidden", "num_heads", "num_kv_heads", "head_dim")),
        ("norm_eps", c_float),
        ("scaling", c_float),
        ("layers", POINTER(_Layer)),
        ("final_norm", c_void_p),
        ("head", _Linear),
        ("embedding", c_void_p),
    )


class _Lora(Structure):
    _fields_ = (("a", c_void_p), ("b", c_void_p), ("rank", c_int64), ("scaling", c_float), ("is_packed", c_int64))


class _Batch(Structure):
    _fields_ = (
        ("num_rows", c_int64),
        *((name, c_void_p) for name in ("tokens", "positions", "cos", "sin", "blocks", "first_block")),
        ("num_segments", c_int64),
        ("segment_starts", c_void_p),
        ("loras", POINTER(_Lora)),
        ("num_outputs", c_int64),
        *((name, c_void_p) for name in ("outputs", "logits", "hidden")),
    )


class DecodeKernel:
    """The fused pass of one base model over one cache. Keeps every tensor alive that the kernel points into."""

    def __init__(self, base: BaseModel, cache: KeyValueCache, compiled: ctypes.CDLL) -> None:
        config = base.config
        self._base = base
        self._compiled = compiled
        self._rank_tile = _LANES if base.dtype == torch.float32 else 2 * _LANES
        self._step = compiled.run_fp32 if base.dtype == torch.float32 else compiled.run_bf16
        self._step.argtypes = (POINTER(_Model), POINTER(_Batch))
        self._step.restype = None
        self._kept: list[Tensor] = []
        self._gains = _gains(base, compiled)
        self._loras: WeakKeyDictionary[Weights, _LoraTable] = WeakKeyDictionary()
        decoder: Any = base.decoder
        self._rotary = decoder.rotary_emb
        self._rotations_2PD = torch.empty(2, 0, 0)
        self._head_name = base.head.name
        self._prefixes = [f"{base.decoder_name}.layers.{i}." for i in range(len(decoder.layers))]
        layers = [self._layer(layer, cache, i) for i, layer in enumerate(decoder.layers)]
        self._layers = (_Layer * len(layers))(*layers)
        shape = base.cache_shape.only
        assert shape is not None
        self._model = _Model(
            num_layers=len(layers),
            hidden=config.hidden_size,
            num_heads=config.num_attention_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.key_dim,
            norm_eps=config.rms_norm_eps,
            scaling=shape.key_dim**-0.5,
            layers=self._layers,
            final_norm=self._fp32(decoder.norm.weight),
            head=self._linear(base.head.projection),
        )
        self._embedding: Tensor = decoder.embed_tokens.weight
        if not base.packed.is_dropped(self._embedding):
            self._model.embedding = self._pointer(self._embedding)

    @classmethod
    def build(cls, base: BaseModel, cache: KeyValueCache) -> "DecodeKernel | None":
        """The kernel for a model that it covers on a CPU with a compiler, else None."""
        compiled = _compiled_for(base) if cache.block_size == _BLOCK_SIZE else None
        return None if compiled is None else cls(base, cache, compiled)

    @staticmethod
    def gains_from_packing(base: BaseModel) -> bool:
        """True if there is a kernel for a model, to which packed weights are faster."""
        compiled = _compiled_for(base)
        return compiled is not None and _gains(base, compiled)

    def run(self, pieces: Sequence[Piece], segments: Sequence[Segment], *, with_hidden: bool) -> tuple[Tensor, Tensor]:
        """Logits (B, V) fp32 after the pieces that reach their last token, and final hidden states (N, H), or (0, H).

        Keys and values are written to the cache.
        """
        lengths = [piece.stop - piece.start for piece in pieces]
        ends = list(itertools.accumulate(lengths))
        num_rows = ends[-1]
        tokens_N = _integers(piece.sequence.tokens[piece.start : piece.stop] for piece in pieces)
        rows_NH = self._base.packed.rows(self._embedding, tokens_N)
        if rows_NH is not None:  # a table of the embeddings of this pass alone
            tokens_N, self._model.embedding = torch.arange(num_rows), rows_NH.data_ptr()
        positions_N = _integers(range(piece.start, piece.stop) for piece in pieces)
        blocks = _integers(piece.sequence.blocks for piece in pieces)
        num_blocks = itertools.accumulate((len(piece.sequence.blocks) for piece in pieces[:-1]), initial=0)
        first_block_N = _integers(itertools.repeat(n, k) for n, k in zip(num_blocks, lengths, strict=True))
        cos_ND, sin_ND = self._rotations(positions_N, max(piece.stop for piece in pieces))
        outputs_B = torch.tensor([end - 1 for end, piece in zip(ends, pieces, strict=True) if piece.is_last])
        logits_BV = torch.empty(len(outputs_B), self._base.head.vocab_size)
        hidden_NH = torch.empty(num_rows if with_hidden else 0, self._model.hidden)
        starts, loras = self._segments(num_rows, segments)
        batch = _Batch(
            num_rows=num_rows,
            tokens=tokens_N.data_ptr(),
            positions=positions_N.data_ptr(),
            cos=cos_ND.data_ptr(),
            sin=sin_ND.data_ptr(),
            blocks=blocks.data_ptr(),
            first_block=first_block_N.data_ptr(),
            num_segments=len(starts) - 1,
            segment_starts=starts.data_ptr(),
            loras=loras,
            num_outputs=len(outputs_B),
            outputs=outputs_B.data_ptr(),
            logits=logits_BV.data_ptr(),
            hidden=hidden_NH.data_ptr() if with_hidden else None,
        )
        self._step(ctypes.byref(self._model), ctypes.byref(batch))
        return logits_BV, hidden_NH

    def _rotations(self, positions_N: Tensor, stop: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines (N, D) of positions below `stop`, from a table."""
        if stop > self._rotations_2PD.shape[1]:
            # Not beyond the context: there the frequencies of some models change, those of all positions.
            grown = min(2 * self._rotations_2PD.shape[1], self._base.info.max_context_tokens)
            positions_1P = torch.arange(max(stop, grown)).unsqueeze(0)
            self._rotations_2PD = torch.cat(self._rotary(torch.empty(0), positions_1P))
        cos_ND, sin_ND = self._rotations_2PD.index_select(1, positions_N)
        return cos_ND, sin_ND

    def _segments(self, num_rows: int, segments: Sequence[Segment]) -> tuple[Tensor, Any]:
        """Bounds of the rows of each adapter, and the adapters' matrices; rows without one get an empty adapter."""
        per_segment = len(self._prefixes) * len(_PROJECTIONS) + 1
        starts, end = [0], 0
        tables: list[Any] = []
        for segment in segments:
            if segment.start > end:
                starts.append(segment.start)
                tables.append((_Lora * per_segment)())
            starts.append(segment.stop)
            tables.append(self._lora_table(segment))
            end = segment.stop
        if end < num_rows:
            starts.append(num_rows)
            tables.append((_Lora * per_segment)())
        flat = (_Lora * (per_segment * len(tables)))()
        size = ctypes.sizeof(_Lora) * per_segment
        for i, table in enumerate(tables):
            ctypes.memmove(ctypes.addressof(flat) + i * size, table, size)
        return torch.tensor(starts), flat

    def _lora_table(self, segment: Segment) -> Any:
        """Pointers into one adapter, made once while it lives."""
        weights = segment.weights
        if weights not in self._loras:
            self._loras[weights] = self._new_lora_table(weights)
        return self._loras[weights].entries

    def _new_lora_table(self, weights: Weights) -> "_LoraTable":
        names = [prefix + projection for prefix in self._prefixes for projection in _PROJECTIONS]
        found = _LoraTable((_Lora * (len(names) + 1))(), [])
        is_packed = self._gains and weights.flat.numel() * weights.flat.itemsize <= _PACKED_ADAPTER_BYTES
        for entry, name in zip(found.entries, [*names, self._head_name], strict=True):
            if name not in weights.views:
                continue
            a_RI, b_OR = weights.views[name]
            entry.rank, entry.scaling = a_RI.shape[0], weights.layout.scaling
            entry.is_packed = is_packed and a_RI.shape[1] % _LANES == 0 and b_OR.shape[0] % _LANES == 0
            if entry.is_packed or self._fills_ranks(a_RI.shape[1], b_OR.shape[0]):
                missing = -entry.rank % self._rank_tile  # further features in the middle, of zeros, change nothing
                entry.rank += missing
                a_RI, b_OR = pad(a_RI, (0, 0, 0, missing)), pad(b_OR, (0, missing))
                if entry.is_packed:
                    a_RI, b_OR = pack(a_RI), pack(b_OR)
                found.kept.extend((a_RI, b_OR))
            entry.a, entry.b = a_RI.data_ptr(), b_OR.data_ptr()
        return found

    def _fills_ranks(self, in_features: int, out_features: int) -> bool:
        return self._base.dtype == torch.bfloat16 and bool(self._compiled.fills_bf16_ranks(in_features, out_features))

    def _layer(self, layer: Any, cache: KeyValueCache, index: int) -> _Layer:
        attention = layer.self_attn
        projections = [self._linear(layer.get_submodule(name)) for name in _PROJECTIONS]
        return _Layer(
            self._fp32(layer.input_layernorm.weight),
            self._fp32(layer.post_attention_layernorm.weight),
            self._fp32(attention.q_norm.weight) if hasattr(attention, "q_norm") else None,
            self._fp32(attention.k_norm.weight) if hasattr(attention, "k_norm") else None,
            *projections,
            # Within a block the order of numbers is the kernel's own (see attention.h); only whole blocks are copied.
            self._pointer(cache.keys[index]),
            self._pointer(cache.values[index]),
            getattr(attention, "sliding_window", None) or 0,
        )

    def _linear(self, module: nn.Module) -> _Linear:
        weight, bias = module.weight, module.bias
        assert isinstance(weight, Tensor)
        bias_pointer = self._fp32(bias) if isinstance(bias, Tensor) else None
        out, in_ = weight.shape
        packed = self._base.packed.of(weight) if self._gains else None
        return _Linear(self._pointer(weight if packed is None else packed), bias_pointer, out, in_, packed is not None)

    def _fp32(self, tensor: Tensor) -> int:
        return self._pointer(tensor.detach().float())

    def _pointer(self, tensor: Tensor) -> int:
        assert tensor.is_contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


@dataclass(frozen=True)
class _LoraTable:
    """The adapters of all sites as the kernel takes them, and the tensors made for it."""

    entries: Any
    kept: list[Tensor]


def _compiled_for(base: BaseModel) -> ctypes.CDLL | None:
    """The compiled pass of a model that it covers on a CPU, else None."""
    config, shape = base.config, base.cache_shape.only
    is_covered = (
        base.device.type == "cpu"
        and config.model_type in _ARCHITECTURES
        and getattr(config, "hidden_act", None) == "silu"
        and not getattr(config, "mlp_bias", False)
        and shape is not None
        and shape.key_dim == shape.value_dim
    )
    return library() if is_covered else None


def _gains(base: BaseModel, compiled: ctypes.CDLL) -> bool:
    return base.dtype == torch.float32 or bool(compiled.packs_bf16())


def _integers(parts: Iterable[Iterable[int]]) -> Tensor:
    """The integers of all parts, end to end."""
    return torch.from_numpy(np.fromiter(itertools.chain.from_iterable(parts), np.int64))
