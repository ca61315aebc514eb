"""Rotary embeddings that change with length: nothing is read back, and the values are those of `transformers`."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from cookhouse.engine.model.base_model import keep_frequencies
from cookhouse.engine.sampler.graph import NothingReadBack
from tests.engine.families import FAMILIES

_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
POSITIONS_1N = torch.tensor([[0, 1, 63, 0, 5, 31]])


def _rotary(family: str, changes: dict[str, Any]) -> nn.Module:
    config = FAMILIES[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    rotary: nn.Module = AutoModelForCausalLM.from_config(config).get_decoder().rotary_emb
    return rotary


@pytest.mark.parametrize(
    ("family", "changes"), [("phi3", {}), ("llama", {"max_position_embeddings": 64, "rope_parameters": _DYNAMIC})]
)
def test_frequencies_are_chosen_without_reading_a_position(family: str, changes: dict[str, Any]) -> None:
    """Would catch models that decode without graphs, and a choice that is another one within the context."""
    x, rotary = torch.zeros(1), _rotary(family, changes)
    expected = rotary(x, POSITIONS_1N)
    keep_frequencies(rotary)
    with NothingReadBack():  # type: ignore[no-untyped-call]
        found = rotary(x, POSITIONS_1N)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_the_choice_of_transformers_reads_a_position_back_for_some() -> None:
    """That the test above can fail."""
    rotary = _rotary("llama", {"max_position_embeddings": 64, "rope_parameters": _DYNAMIC})
    with pytest.raises(RuntimeError, match="reads back"), NothingReadBack():  # type: ignore[no-untyped-call]
        rotary(torch.zeros(1), POSITIONS_1N)
