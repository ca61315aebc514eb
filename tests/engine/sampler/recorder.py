"""What takes the place of a GPU in tests of captured steps: a recorder for CUDA graphs, plain torch for the kernel."""

import torch
from torch import Tensor

from cookhouse.engine.sampler.graph import NothingReadBack, Step


class Recorder:
    """A `Capture` that calls the step again, after checking that it does nothing that no graph can hold."""

    def __init__(self) -> None:
        self.num_captures = 0
        self.num_replays = 0

    def __call__(self, step: Step) -> Step:
        with NothingReadBack():  # type: ignore[no-untyped-call]
            step()
        self.num_captures += 1

        def replay() -> None:
            self.num_replays += 1
            step()

        return replay


def attend_plainly(
    q_NHD: Tensor,
    keys: Tensor,
    values: Tensor,
    tables_SM: Tensor,
    starts_S1: Tensor,
    contexts_S: Tensor,
    *,
    block_size: int,
    max_queries: int,
    min_queries: int,
    scaling: float,
    window: int | None,
    sinks_H: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """What `paged_attention` computes, row by row over whole tables."""
    assert 0 < min_queries <= max_queries
    rows_N = torch.arange(len(q_NHD))
    pieces_N = torch.searchsorted(starts_S1[1:].long(), rows_N, right=True)
    positions_N = contexts_S[pieces_N] - (starts_S1[pieces_N + 1] - rows_N)
    slots_SL = (tables_SM.long().unsqueeze(2) * block_size + torch.arange(block_size)).flatten(1)
    per_kv = q_NHD.shape[1] // keys.shape[1]
    k_NLHD, v_NLHD = (t[slots_SL[pieces_N]].repeat_interleave(per_kv, 2) for t in (keys, values))
    distance_NL = positions_N.unsqueeze(1) - torch.arange(slots_SL.shape[1])
    is_hidden_NL = (distance_NL < 0) | (distance_NL >= (window or distance_NL.shape[1]))
    scores_NHL = torch.einsum("nhd,nlhd->nhl", q_NHD, k_NLHD) * scaling
    if softcap is not None:
        scores_NHL = softcap * torch.tanh(scores_NHL / softcap)
    scores_NHL = scores_NHL.masked_fill(is_hidden_NL.unsqueeze(1), float("-inf"))
    sinks_H = q_NHD.new_full(q_NHD.shape[1:2], float("-inf")) if sinks_H is None else sinks_H
    sinks_NH1 = sinks_H.view(1, -1, 1).expand(len(q_NHD), -1, -1)
    probs_NHL = torch.softmax(torch.cat([scores_NHL, sinks_NH1], -1), -1)[..., :-1]
    return torch.einsum("nhl,nlhd->nhd", probs_NHL, v_NLHD.nan_to_num())
