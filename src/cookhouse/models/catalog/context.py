"""Context length of a model, from its config.json."""

from collections.abc import Mapping
from typing import Any

from cookhouse.models.catalog.dims import text_values

_ORIGINAL = "original_max_position_embeddings"


def context_of_config(config: Mapping[str, Any]) -> int | None:
    """Tokens of prompt and answer together; None if the config does not say.

    A model with LongRoPE (https://arxiv.org/abs/2402.13753; Phi-3, Phi-4-mini) has two sets of rotary frequencies, and
    takes the second for all positions of a sequence that is longer than its original context. What it computes of a
    token would then depend on how long the sequence becomes, which no sampler knows. So it has its original context.
    """
    values = text_values(config)
    lengths = [values.get("max_position_embeddings")]
    for rope in _ropes(values):
        if rope.get("long_factor") is not None:
            lengths.append(rope.get(_ORIGINAL) or values.get(_ORIGINAL))
    known = [length for length in lengths if isinstance(length, int) and length > 1]
    return min(known) if len(known) == len(lengths) else None


def _ropes(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Settings of a config on rotary embeddings, by their name of today or of before, for all layers or by kind."""
    ropes = [rope for name in ("rope_parameters", "rope_scaling") if isinstance(rope := values.get(name), Mapping)]
    return [*ropes, *(part for rope in ropes for part in rope.values() if isinstance(part, Mapping))]
