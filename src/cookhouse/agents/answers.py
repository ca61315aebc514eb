"""Samples of a rollout in the form in which dialects read samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cookhouse.rl import TokensWithLogprobs


@dataclass(frozen=True, slots=True)
class Sample:
    """One whole sample; fits `SampledSequence` of the dialects."""

    tokens_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    is_stopped: bool
    is_grammar_end: bool = False
    free_logprobs_T: NDArray[np.float32] | None = None
    is_masked_T: NDArray[np.bool_] | None = None
    topk_tokens_TK: NDArray[np.int32] | None = None
    topk_logprobs_TK: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """The sample of a call; fits `SampleOutput` of the dialects. `is_partial`: before its end."""

    is_partial: bool
    sequences: Sequence[Sample]
    num_reused_tokens: int = 0
    prompt_logprobs_T: NDArray[np.float32] | None = None
    topk_prompt_tokens_TK: NDArray[np.int32] | None = None
    topk_prompt_logprobs_TK: NDArray[np.float32] | None = None


def outputs_of(action: TokensWithLogprobs) -> tuple[Output, Output]:
    """The outputs of an answer: the one before its end, as a stream has it, and the whole."""
    sample = Sample(
        np.array(action.tokens, dtype=np.int32),
        np.array(action.logprobs, dtype=np.float32),
        is_stopped=not action.is_truncated,
    )
    return Output(True, [sample]), Output(False, [sample])
