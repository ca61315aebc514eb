"""What a model's layers ask of attention.

Legend: N packed positions, H query heads, K key-value heads, D features per head.
"""

from torch import Tensor


class AttentionShapes:
    """Records what each layer asks for, by layer, and computes nothing: the output is zero."""

    def __init__(self) -> None:
        self.kv_shapes: dict[int, tuple[int, int, int]] = {}
        """Key-value heads, features of a key, features of a value."""
        self.windows: dict[int, int | None] = {}

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
    ) -> Tensor:
        """See `AttentionLayout`."""
        del scaling, sinks_H
        self.kv_shapes[layer] = (k_NKD.shape[1], k_NKD.shape[2], v_NKD.shape[2])
        self.windows[layer] = window
        return q_NHD.new_zeros(*q_NHD.shape[:2], v_NKD.shape[2])
