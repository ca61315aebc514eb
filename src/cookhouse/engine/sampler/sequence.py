"""One sequence being sampled: its tokens, its place in the cache, and when it ends."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cookhouse.engine.contract import SampleRequest
from cookhouse.engine.sampler.grammar import Constraint


@dataclass(eq=False)
class Sequence:
    """A prompt with what has been sampled after it. Sample `index` of its request."""

    request: SampleRequest
    index: int
    tokens: list[int]
    """Prompt, then sampled tokens."""
    num_prompt: int
    max_total: int
    """Length at which the sequence ends whatever it holds."""
    seed: int
    stop_tokens: frozenset[int]
    stop_strings: tuple[str, ...]
    root: int = 0
    """Whose keys and values it computes: the serial of its weights; for the bare base model 0 or less, by owner."""
    num_cached: int = 0
    """Positions whose keys and values are in the cache."""
    blocks: list[int] = field(default_factory=list)
    state: int | None = None
    """Slot of the state of recurrent layers after `num_cached` positions; None before the first one."""
    next_states: dict[int, int] = field(default_factory=dict)
    """Slots that the pass under way writes to, by the number of positions after which; the last one is its end."""
    kept_positions: set[int] = field(default_factory=set)
    """After how many positions the state is kept for others."""
    logprobs: list[float] = field(default_factory=list)
    ranked: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = field(default_factory=list)
    """Candidates (K,) for each sampled token and their log-probabilities (K,), most likely first, if asked for."""
    constraint: Constraint | None = None
    """Its place in the request's grammar."""
    free_logprobs: list[float] = field(default_factory=list)
    """Of the model's own distribution, where the request `is_shaped`."""
    is_masked: list[bool] = field(default_factory=list)
    """Whether tokens were taken away that had some of the probability, where the request `is_shaped`."""
    is_grammar_end: bool = False
    num_reused: int = 0
    """Prompt positions that the cache held when the prompt was last admitted."""
    num_forks: int = 0
    """Further samples that start when the prompt has been read."""
    is_stopped: bool = False
    longest_stop_bytes: int = field(init=False)
    """Of the strings in `stop_strings`."""

    def __post_init__(self) -> None:
        self.longest_stop_bytes = max(
            (len(stop.encode(errors="surrogatepass")) for stop in self.stop_strings), default=0
        )

    @property
    def is_too_short(self) -> bool:
        """True if nothing may end it yet."""
        return len(self.tokens) - self.num_prompt < self.request.min_tokens

    @property
    def num_uncached(self) -> int:
        """Positions that the next passes must compute."""
        return len(self.tokens) - self.num_cached

    @property
    def can_skip_prompt(self) -> bool:
        """True if its prompt need not be computed: nothing was asked about it, or that has been answered."""
        return not self.request.scores_prompt or self.index > 0 or len(self.tokens) > self.num_prompt

    @property
    def is_finished(self) -> bool:
        """True if no further token is wanted."""
        return self.is_stopped or len(self.tokens) >= self.max_total

    def fork(self, index: int) -> "Sequence":
        """Another sample of the same prompt; the scheduler gives it its blocks."""
        return Sequence(
            request=self.request,
            index=index,
            tokens=list(self.tokens),
            num_prompt=self.num_prompt,
            max_total=self.max_total,
            seed=self.seed,
            stop_tokens=self.stop_tokens,
            stop_strings=self.stop_strings,
            root=self.root,
            constraint=None if self.constraint is None else self.constraint.copy(),
            num_cached=self.num_cached,
        )
