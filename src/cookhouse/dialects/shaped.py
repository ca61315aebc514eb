"""The record of tokens that a grammar, bias or penalties were at work on, beside the token ids of an answer."""

from dataclasses import dataclass, field
from typing import Any

from cookhouse.dialects.sampled import SampledSequence


@dataclass
class ShapedTokens:
    """Tokens of one sample that no part of the answer has told of; a sample of the model's own distribution has none.

    Log-probabilities are in nats.
    """

    _sampled: list[float] = field(default_factory=list)
    _free: list[float] = field(default_factory=list)
    _masked: list[bool] = field(default_factory=list)
    _is_grammar_end: bool = False

    def add(self, sequence: SampledSequence) -> None:
        """Take the next tokens of the sample."""
        if sequence.free_logprobs_T is None or sequence.is_masked_T is None:
            return
        self._sampled += sequence.logprobs_T.tolist()
        self._free += sequence.free_logprobs_T.tolist()
        self._masked += sequence.is_masked_T.tolist()
        self._is_grammar_end = sequence.is_grammar_end

    def next(self) -> dict[str, Any]:
        """Fields of a choice for the tokens since it was last asked; none where there are none."""
        if not self._sampled:
            return {}
        said = {
            "sampled_logprobs": self._sampled,
            "free_logprobs": self._free,
            "is_masked": self._masked,
            "num_masked": sum(self._masked),
            "is_grammar_end": self._is_grammar_end,
        }
        self._sampled, self._free, self._masked = [], [], []
        return said
