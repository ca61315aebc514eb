"""Samples as the dialects read them: an engine's own, or those of a recorded answer."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class SampledSequence(Protocol):
    """Tokens of a sample, or its next ones, the one that stops included, with their log-probabilities (nats)."""

    @property
    def tokens_T(self) -> NDArray[np.int32]: ...
    @property
    def logprobs_T(self) -> NDArray[np.float32]: ...
    @property
    def is_stopped(self) -> bool: ...
    @property
    def topk_tokens_TK(self) -> NDArray[np.int32] | None: ...
    @property
    def topk_logprobs_TK(self) -> NDArray[np.float32] | None: ...


class SampleOutput(Protocol):
    """Samples of one prompt. `is_partial`: of one step, whose whole follows in the end."""

    @property
    def is_partial(self) -> bool: ...
    @property
    def sequences(self) -> Sequence[SampledSequence]: ...
    @property
    def num_reused_tokens(self) -> int: ...
    @property
    def prompt_logprobs_T(self) -> NDArray[np.float32] | None: ...
    @property
    def topk_prompt_tokens_TK(self) -> NDArray[np.int32] | None: ...
    @property
    def topk_prompt_logprobs_TK(self) -> NDArray[np.float32] | None: ...
