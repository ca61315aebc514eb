"""Log-probabilities that a request asked about its prompt: those (nats) of its tokens, or of others in their place, and
the candidates ranked first.

Legend: T prompt positions, K ranked candidates, M targets, N packed positions of a pass, H hidden.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from cookhouse.engine.contract import SampleRequest
from cookhouse.engine.model.head import Head, Targets
from cookhouse.engine.sampler.runner import Reading
from cookhouse.engine.sampler.scheduler import Piece

_EMPTY_CELL = -99999.0
"""Log-probability that the protocol puts where no candidate is ranked."""


class PromptScores:
    """Filled in as the pieces of a prompt are read; arrays are None where nothing was asked."""

    def __init__(self, request: SampleRequest) -> None:
        num_prompt, k = len(request.prompt_T), request.topk_prompt_logprobs
        self.logprobs_T: NDArray[np.float32] | None = None
        self.topk_tokens_TK: NDArray[np.int32] | None = None
        self.topk_logprobs_TK: NDArray[np.float32] | None = None
        if request.prompt_logprobs:
            self.logprobs_T = np.full(num_prompt, np.nan, np.float32)
        if k:
            self.topk_tokens_TK = np.zeros((num_prompt, k), np.int32)
            self.topk_logprobs_TK = np.full((num_prompt, k), _EMPTY_CELL, np.float32)
        self._targets = request.prompt_targets
        self.target_logprobs_M: NDArray[np.float32] | None = None
        if self._targets is not None:
            self.target_logprobs_M = np.zeros(len(self._targets.tokens_M), np.float32)
        self.is_asked = request.scores_prompt
        # Position t predicts token t + 1, so that the first token is never scored.
        self._num_scored = 1

    def add(self, head: Head, piece: Piece, first_row: int, reading: Reading) -> None:
        """Score the prompt tokens that a piece's positions predict, where they were asked for."""
        if not self.is_asked:
            return
        # A prompt that is read again after preemption was scored before.
        start, stop = max(piece.start + 1, self._num_scored), min(piece.stop + 1, piece.sequence.num_prompt)
        if start >= stop:
            return
        hidden_NH, segments = reading.hidden_NH, reading.segments
        offset = first_row - piece.start - 1
        rows = torch.arange(start + offset, stop + offset)
        if self.logprobs_T is not None:
            tokens = torch.tensor(piece.sequence.tokens[start:stop], device=hidden_NH.device)
            self.logprobs_T[start:stop] = head.logprobs(hidden_NH, Targets(rows, tokens), segments).cpu().numpy()
        if self.topk_tokens_TK is not None and self.topk_logprobs_TK is not None:
            ranked, tokens = head.topk_logprobs(hidden_NH, rows, self.topk_tokens_TK.shape[1], segments)
            self.topk_tokens_TK[start:stop] = tokens.cpu().numpy()
            self.topk_logprobs_TK[start:stop] = ranked.cpu().numpy()
        if self._targets is not None and self.target_logprobs_M is not None:
            first, end = np.searchsorted(self._targets.positions_M, [start, stop])
            if first < end:
                tokens = torch.tensor(self._targets.tokens_M[first:end], device=hidden_NH.device)
                targets = Targets(torch.tensor(self._targets.positions_M[first:end] + offset), tokens)
                self.target_logprobs_M[first:end] = head.logprobs(hidden_NH, targets, segments).cpu().numpy()
        self._num_scored = stop
