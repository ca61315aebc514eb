"""Gated delta layers: a recurrent state and a short convolution in place of attention over all that was read."""

from cookhouse.engine.model.delta.chunks import CHUNK, DeltaSpan
from cookhouse.engine.model.delta.inputs import DeltaInputs, DeltaLayout, StateShape
from cookhouse.engine.model.delta.layer import MODEL_TYPES, RECURRENT_KIND, use_layout
from cookhouse.engine.model.delta.packed import PackedDelta

__all__ = [
    "CHUNK",
    "MODEL_TYPES",
    "RECURRENT_KIND",
    "DeltaInputs",
    "DeltaLayout",
    "DeltaSpan",
    "PackedDelta",
    "StateShape",
    "use_layout",
]
