"""Causal attention over packed sequences: the interface that a model's layers call, and the layout of training."""

from cookhouse.engine.model.attention.interface import NAME, AttentionLayout
from cookhouse.engine.model.attention.packed import PackedLayout, SharedLayout
from cookhouse.engine.model.attention.products import softmax, widened
from cookhouse.engine.model.attention.shapes import AttentionShapes, CacheShape, LayerShape

__all__ = [
    "NAME",
    "AttentionLayout",
    "AttentionShapes",
    "CacheShape",
    "LayerShape",
    "PackedLayout",
    "SharedLayout",
    "softmax",
    "widened",
]
