"""Inputs of a gated delta layer, and the state that it keeps of a sequence.

Legend: N packed positions, K key heads, V value heads, D features of a key, E features of a value, W taps of the
convolution, C channels: queries (K·D), keys (K·D) and values (V·E).
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_STATE_DTYPE = torch.float32


@dataclass(frozen=True, slots=True)
class StateShape:
    """Sizes of one layer."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    num_taps: int

    @property
    def num_channels(self) -> int:
        """Queries, keys and values of one position."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    @property
    def per_key(self) -> int:
        """Value heads of one key head."""
        return self.num_value_heads // self.num_key_heads

    @property
    def recurrent(self) -> tuple[int, int, int, int]:
        """Shape of the recurrent state of a sequence, fp32."""
        return self.num_key_heads, self.per_key, self.key_dim, self.value_dim

    @property
    def convolution(self) -> tuple[int, int]:
        """Shape of the inputs that the next positions' convolution reads again, oldest first."""
        return self.num_taps - 1, self.num_channels

    def num_bytes(self, dtype: torch.dtype) -> int:
        """Memory that the layer takes for a sequence, whatever its length."""
        recurrent = self.num_value_heads * self.key_dim * self.value_dim * _STATE_DTYPE.itemsize
        return recurrent + (self.num_taps - 1) * self.num_channels * dtype.itemsize


@dataclass(frozen=True, slots=True)
class DeltaInputs:
    """A pass before the convolution."""

    mixed_NC: Tensor
    taps_CW: Tensor
    """Weights of the convolution; the last one is that of a position itself."""
    decay_NV: Tensor
    """Logarithm of what is left of the state at each position, fp32."""
    beta_NV: Tensor
    """Which part of what the state holds for a key is replaced."""
    shape: StateShape

    def at(self, rows: Tensor) -> "DeltaInputs":
        """Inputs of some rows."""
        mixed, decay, beta = (t.index_select(0, rows) for t in (self.mixed_NC, self.decay_NV, self.beta_NV))
        return DeltaInputs(mixed, self.taps_CW, decay, beta, self.shape)


class DeltaLayout(Protocol):
    """Grouping of the rows of a pass by sequence, with the states before them; used with `AttentionLayout`."""

    def recur(self, layer: int, inputs: DeltaInputs) -> Tensor:
        """Output (N, V, E) of one layer, each sequence by itself, in the precision of the inputs."""
