"""Rotary embeddings whose frequencies `transformers` chooses anew in each pass, by the largest position.

Within the context of a model (`models.catalog.context`) the choice is always the same: LongRoPE has its short factors,
and dynamic scaling does not scale yet. So it is made once. In a pass some versions read the position back to the host,
which waits for a GPU and keeps a step from being captured.
"""

import inspect
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

_CHANGING = ("dynamic", "longrope")


def keep_frequencies(model: nn.Module) -> None:
    """Have rotary embeddings keep the frequencies that they were made with."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        names = kinds.values() if isinstance(kinds, dict) else [kinds]
        if any(isinstance(name, str) and any(kind in name for kind in _CHANGING) for name in names):
            module.forward = MethodType(_forward, module)


@torch.no_grad()
def _forward(self: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    # What chooses is a decorator of what computes.
    cos_and_sin: tuple[Tensor, Tensor] = inspect.unwrap(type(self).forward)(self, *args, **kwargs)
    return cos_and_sin
