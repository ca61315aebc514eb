"""Causal attention over packed sequences: the interface that a model's layers call, and the layout of training."""

from cookhouse.engine.attention.interface import NAME, AttentionLayout
from cookhouse.engine.attention.packed import PackedLayout
from cookhouse.engine.attention.products import softmax
from cookhouse.engine.attention.shapes import AttentionShapes

__all__ = ["NAME", "AttentionLayout", "AttentionShapes", "PackedLayout", "softmax"]
