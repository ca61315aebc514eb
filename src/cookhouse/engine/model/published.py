"""Comparison of this engine with `transformers` on a few tokens of a model.

Legend: T tokens, N rows that are compared, H hidden, V vocabulary, F features of a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.model.pretrained import first_line
from cookhouse.engine.model.text_part import text_config
from cookhouse.errors import InputError

_NUM_TOKENS = 6
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.3}
"""Relative to the length of a row. Right models are off by 1e-5 and by 0.03 or so, rounding of some tens of layers; a
layer that is computed wrongly, by about 1."""


@dataclass(frozen=True, slots=True)
class Published:
    """Final hidden states of one sequence, and logits of the same times 1, 4, 16 and so on: a cap of logits, which does
    nothing to small ones, shows in the larger.
    """

    tolerance: float
    tokens_T: Tensor
    hidden_TH: Tensor
    scaled_TH: Tensor
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
        seen: list[Tensor] = []

        def scale(_: Any, __: Any, output: Any) -> Any:
            hidden_1TH = output.last_hidden_state
            factors_T = 4.0 ** torch.arange(_NUM_TOKENS, device=device)
            output.last_hidden_state = (hidden_1TH * factors_T[:, None]).to(hidden_1TH.dtype)
            seen.extend([hidden_1TH[0], output.last_hidden_state[0]])
            return output

        handle = model.get_decoder().register_forward_hook(scale)
        try:
            logits_TV = model(input_ids=tokens_T.unsqueeze(0), use_cache=False).logits[0]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a model's code raises, for a config that nobody tried
            raise InputError(f"transformers cannot compute it ({first_line(error)}); use another model") from error
        finally:
            handle.remove()
        if not torch.isfinite(logits_TV).all():
            raise InputError("transformers computes NaN or infinity with its weights; get the files again")
        # Of the weights' precision: some models give wider numbers than they compute with.
        tolerance = _TOLERANCE[model.get_input_embeddings().weight.dtype]
        hidden_TH, scaled_TH = seen
        return cls(tolerance, tokens_T, hidden_TH, scaled_TH, logits_TV)

    def check_hidden(self, what: str, got_NH: Tensor, rows: slice = slice(None)) -> None:
        """Refuse a model of which this engine computes other hidden states in some way, which `what` names."""
        # The median: near a tie of two experts rounding decides which of them a row gets.
        self._check(what, got_NH, self.hidden_TH[rows], torch.median)

    def check_logits(self, got_TV: Tensor) -> None:
        """Refuse a model of which this engine computes other logits from `scaled_TH`."""
        self._check("its logits", got_TV, self.logits_TV, torch.max)

    def _check(self, what: str, got_NF: Tensor, want_NF: Tensor, of_rows: Callable[[Tensor], Tensor]) -> None:
        if got_NF.shape != want_NF.shape:
            raise InputError(f"{what} have shape {tuple(got_NF.shape)}, and {tuple(want_NF.shape)} in transformers")
        length_N = want_NF.float().norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
        difference = float(of_rows((got_NF.float() - want_NF.float()).norm(dim=1) / length_N))
        if not difference <= self.tolerance:
            raise InputError(
                f"{what} are not what transformers computes (on {len(want_NF)} tokens they differ by {difference:.2g} "
                f"of their length, and rounding explains {self.tolerance:g}): this engine computes some part of it "
                "otherwise; use another model"
            )
