"""A sampling request under way, and what is reported of it.

Legend: T tokens of a sample, K candidates for each.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np

from cookhouse.engine.contract import SampledSequence, SampleOutput, SampleRequest
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.sampler.scoring import PromptScores
from cookhouse.engine.sampler.sequence import Sequence

_NO_TOKENS = SampledSequence(tokens_T=np.empty(0, np.int32), logprobs_T=np.empty(0, np.float32), is_stopped=False)


@dataclass
class RunningRequest:
    """Its weights, the sequences that finished, and what was asked about the prompt."""

    request: SampleRequest
    weights: Weights | None
    scores: PromptScores
    finished: dict[int, SampledSequence] = field(default_factory=dict)
    live: list[Sequence] = field(default_factory=list)
    num_reused: int = 0
    """Prompt tokens that the cache already held."""

    def newest(self, sequences: Seq[Sequence]) -> SampleOutput:
        """Output of a step: the last token of each of these sequences, none of the others."""
        by_index = {sequence.index: _sampled(sequence, last=1) for sequence in sequences}
        return self._output(
            [by_index.get(index, _NO_TOKENS) for index in range(self.request.num_samples)], is_partial=True
        )

    def finish(self, sequence: Sequence) -> SampleOutput | None:
        """Take note that a sequence has ended; the answer where it was the last one."""
        self.live.remove(sequence)
        if sequence.index == 0:
            self.num_reused = sequence.num_reused
        self.finished[sequence.index] = _sampled(sequence, last=len(sequence.logprobs))
        if len(self.finished) < self.request.num_samples:
            return None
        return self._output([self.finished[index] for index in range(self.request.num_samples)], is_partial=False)

    def _output(self, sequences: Seq[SampledSequence], *, is_partial: bool) -> SampleOutput:
        return SampleOutput(
            request_id=self.request.request_id,
            is_partial=is_partial,
            sequences=sequences,
            num_reused_tokens=self.num_reused,
            prompt_logprobs_T=self.scores.logprobs_T,
            topk_prompt_tokens_TK=self.scores.topk_tokens_TK,
            topk_prompt_logprobs_TK=self.scores.topk_logprobs_TK,
            target_logprobs_M=self.scores.target_logprobs_M,
        )


def _sampled(sequence: Sequence, *, last: int) -> SampledSequence:
    """The last tokens that were sampled of a sequence."""
    ranked = sequence.ranked[-last:]
    return SampledSequence(
        tokens_T=np.array(sequence.tokens[-last:], np.int32),
        logprobs_T=np.array(sequence.logprobs[-last:], np.float32),
        is_stopped=sequence.is_stopped,
        topk_tokens_TK=np.stack([tokens for tokens, _ in ranked]) if ranked else None,
        topk_logprobs_TK=np.stack([logprobs for _, logprobs in ranked]) if ranked else None,
    )
