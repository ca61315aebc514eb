"""Shapes of attention: what a model's layers ask of a layout, and what a key-value cache keeps of it.

Legend: N packed positions, H query heads, K key-value heads, D features per head.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from cookhouse.engine.model.delta import DeltaInputs, StateShape


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Keys and values of one position in one layer."""

    num_kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def num_features(self) -> int:
        """Numbers of keys and values together."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Shapes of one position in a key-value cache, by layer; None: the layer keeps no keys and values."""

    layers: tuple[LayerShape | None, ...]

    @property
    def num_features(self) -> int:
        """Numbers that one position takes, keys and values of all layers together."""
        return sum(layer.num_features for layer in self.layers if layer is not None)

    @property
    def only(self) -> LayerShape | None:
        """The shape of every layer; None where layers differ."""
        first, *others = self.layers
        return first if all(layer == first for layer in others) else None


class AttentionShapes:
    """Records what each layer asks for, by layer, and computes nothing: the output is zero."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}
        self.repeated: set[int] = set()
        """Layers that attended more than once."""
        self.state_shapes: dict[int, StateShape] = {}
        """Of gated delta layers."""

    def of(self, layers: Iterable[int]) -> CacheShape:
        """Shapes of a cache for these layers."""
        return CacheShape(tuple(self.layers.get(layer) for layer in layers))

    def attend(
        self,
        layer: int,
        q_NHD: Tensor,
        k_NKD: Tensor,
        v_NKD: Tensor,
        *,
        scaling: float,
        window: int | None,
        sinks_H: Tensor | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """See `AttentionLayout`."""
        del scaling, sinks_H, softcap
        if layer in self.layers:
            self.repeated.add(layer)
        self.layers[layer] = LayerShape(k_NKD.shape[1], k_NKD.shape[2], v_NKD.shape[2])
        self.windows[layer] = window
        return q_NHD.new_zeros(*q_NHD.shape[:2], v_NKD.shape[2])

    def recur(self, layer: int, inputs: DeltaInputs) -> Tensor:
        """See `DeltaLayout`."""
        shape = inputs.shape
        self.state_shapes[layer] = shape
        return inputs.mixed_NC.new_zeros(len(inputs.mixed_NC), shape.num_value_heads, shape.value_dim)
