"""The attention function registered with `transformers` under the name `cookhouse`.

A model's attention layers call `attend` of the layout object that its forward was given, so lengths travel as an
argument. `PackedLayout` serves training; the sampler brings layouts that read its key-value cache.

Legend: N packed positions, H query heads, K key-value heads, D features per head.
"""

from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

from cookhouse.errors import InputError

NAME = "cookhouse"
_OF_THE_PASS = frozenset({"position_ids"})
"""What layers hand on to every attention function, and none has to read."""


class AttentionLayout(Protocol):
    """Rule by which positions of a pass see keys."""

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
        """Attention output (N, H, D) of one layer; `window` limits how many latest keys a query sees.

        With a `softcap`, scores are softcap · tanh(score / softcap), of those that are scaled.

        A sink is the score of a further key that every query of a head sees, whose value is zero. Values may have other
        features than queries and keys.
        """


def _attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    layout: AttentionLayout | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """Adapter from the interface of `transformers` (query (1, H, N, D)) to a layout.

    Raises:
        InputError: a layer asks for what no layout computes.
    """
    assert dropout == 0.0
    kind = type(module).__name__
    if layout is None:
        raise InputError(f"its {kind} is not told which sequences a pass consists of; use another model")
    asked = [
        name for name, value in others.items() if name not in _OF_THE_PASS and not (value is None or value is False)
    ]
    if asked or attention_mask is not None:
        raise InputError(
            f"its {kind} attends by {', '.join(asked) or 'a mask of its own'}, which this engine does not compute; "
            "use another model"
        )
    out_NHD = layout.attend(
        int(module.layer_idx),  # type: ignore[arg-type]
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scaling=scaling,
        window=sliding_window,
        sinks_H=s_aux,
        softcap=softcap,
    )
    return out_NHD.unsqueeze(0), None


AttentionInterface.register(NAME, _attention_function)
