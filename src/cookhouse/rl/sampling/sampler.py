"""The interface of a sampler: tokens in, tokens with their logprobs out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import tinker

StopCondition: TypeAlias = list[str] | list[int]
"""Strings or tokens at which sampling stops; the SDK takes one kind at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensWithLogprobs:
    """Sampled tokens, the stop token included, and the logprob of each under the distribution sampled from.

    Where a grammar was at work, the logprobs are the model's own, as if it had taken nothing away.
    """

    tokens: Sequence[int]
    maybe_logprobs: Sequence[float] | None
    is_truncated: bool = False
    """Whether the limit of tokens ended it, and not a stop condition."""
    is_masked: Sequence[bool] | None = None
    """Of each token: a grammar took probability away before it was drawn, so that it is not trained. None: of none."""
    is_grammar_end: bool = False
    """True if a grammar ended it, without a stop token."""

    @property
    def logprobs(self) -> Sequence[float]:
        """The logprobs.

        Raises:
            ValueError: the sampler gave none.
        """
        if self.maybe_logprobs is None:
            raise ValueError("these tokens came without logprobs; training needs a sampler that gives them")
        return self.maybe_logprobs

    @property
    def trained(self) -> Sequence[bool]:
        """Of each token: it is trained."""
        return [True] * len(self.tokens) if self.is_masked is None else [not one for one in self.is_masked]


class GroupSampler(Protocol):
    """Samples from one version of the weights, however long that takes."""

    @property
    def version(self) -> int:
        """Training steps behind the weights."""

    async def sample(
        self, prompt: tinker.ModelInput, stop: StopCondition, *, num_samples: int, max_tokens: int | None, seed: int
    ) -> Sequence[TokensWithLogprobs]:
        """`num_samples` continuations of one prompt, of at most `max_tokens` tokens, or the sampler's own limit if that
        is lower. The same seed gives the same tokens.

        Raises:
            Exception: of the service; a rollout records it as a failure of `sampling`.
        """
