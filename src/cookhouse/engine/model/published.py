"""What `transformers` computes with a model on a few tokens, and whether this engine computes the same with it.

Legend: T tokens, N rows that are compared, H hidden, V vocabulary, F features of a row.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.model.text_part import text_config
from cookhouse.errors import InputError

_NUM_TOKENS = 6
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.3}
"""Relative to the length of a row. Right models are off by 1e-5 and by 0.03 or so, rounding of some tens of layers; a
layer that is computed wrongly, by about 1."""


@dataclass(frozen=True, slots=True)
class Published:
    """Final hidden states and logits of one sequence."""

    tokens_T: Tensor
    hidden_TH: Tensor
    logits_TV: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, model: Any) -> "Published":
        """By a model of `transformers` as it was loaded, whose attention is its own.

        Raises:
            InputError: it cannot be computed there.
        """
        vocab_size, device = text_config(model.config).vocab_size, model.device
        tokens_T = torch.randint(vocab_size, (_NUM_TOKENS,), generator=torch.Generator().manual_seed(0)).to(device)
        seen: list[Any] = []
        handle = model.get_decoder().register_forward_hook(lambda *call: seen.append(call[-1]))
        try:
            logits_TV = model(input_ids=tokens_T.unsqueeze(0), use_cache=False).logits[0]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a model's code raises, for a config that nobody tried
            raise InputError(f"transformers cannot compute it ({first_line(error)}); use another model") from error
        finally:
            handle.remove()
        return cls(tokens_T, seen[-1].last_hidden_state[0], logits_TV)

    def check_hidden(self, what: str, got_NH: Tensor, rows: slice = slice(None)) -> None:
        """Refuse a model of which this engine computes other hidden states in some way, which `what` names."""
        _check(what, got_NH, self.hidden_TH[rows])

    def check_logits(self, got_TV: Tensor) -> None:
        """Refuse a model of which this engine computes other logits from the same hidden states."""
        _check("its logits", got_TV, self.logits_TV)


def _check(what: str, got_NF: Tensor, want_NF: Tensor) -> None:
    if got_NF.shape != want_NF.shape:
        raise InputError(f"{what} have shape {tuple(got_NF.shape)}, and {tuple(want_NF.shape)} in transformers")
    length_N = want_NF.float().norm(dim=1)
    # The median: near a tie of two experts rounding decides which of them a row gets.
    difference = float(((got_NF.float() - want_NF.float()).norm(dim=1) / length_N).median())
    most = _TOLERANCE[want_NF.dtype]
    if not difference <= most:
        raise InputError(
            f"{what} are not what transformers computes (on {len(want_NF)} tokens they differ by {difference:.2g} of "
            f"their length, and rounding explains {most:g}): this engine computes some part of it otherwise; use "
            "another model"
        )


def first_line(error: Exception) -> str:
    """An error of another library in a message of ours."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
