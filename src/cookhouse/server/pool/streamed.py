"""What a client has of a streamed sample: each token once, whichever worker draws it."""

from collections import Counter
from dataclasses import replace

from cookhouse.engine.contract import SampledSequence, SampleOutput


class Streamed:
    """Counts tokens by sequence: sequences of one sample step together at one worker, and apart at another."""

    def __init__(self) -> None:
        self._told: Counter[int] = Counter()
        """Tokens that the client has."""
        self._drawn: Counter[int] = Counter()
        """Those that the present worker has told."""

    def begin_again(self) -> None:
        """Another worker draws it, from the first token on."""
        self._drawn.clear()

    def newest(self, output: SampleOutput) -> SampleOutput | None:
        """What of a step the client does not have; None: it has all of it."""
        newest = [self._cut(index, sequence) for index, sequence in enumerate(output.sequences)]
        if all(before is after for before, after in zip(output.sequences, newest, strict=True)):
            return output
        return replace(output, sequences=newest) if any(sequence.tokens_T.size for sequence in newest) else None

    def _cut(self, index: int, sequence: SampledSequence) -> SampledSequence:
        num_known = max(0, self._told[index] - self._drawn[index])
        self._drawn[index] += sequence.tokens_T.size
        self._told[index] = max(self._told[index], self._drawn[index])
        if not num_known or not sequence.tokens_T.size:
            return sequence
        topk_tokens_TK, topk_logprobs_TK = sequence.topk_tokens_TK, sequence.topk_logprobs_TK
        return replace(
            sequence,
            tokens_T=sequence.tokens_T[num_known:],
            logprobs_T=sequence.logprobs_T[num_known:],
            topk_tokens_TK=None if topk_tokens_TK is None else topk_tokens_TK[num_known:],
            topk_logprobs_TK=None if topk_logprobs_TK is None else topk_logprobs_TK[num_known:],
        )
