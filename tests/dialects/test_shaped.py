"""The record of a grammar in answers with token ids, whole and streamed."""

from dataclasses import replace
from typing import Any

import numpy as np

from cookhouse.dialects.vllm import GenerateRequest, Generation
from cookhouse.engine.contract import SampledSequence, SampleOutput

HELD = SampledSequence(
    tokens_T=np.array([5, 6, 7], np.int32),
    logprobs_T=np.array([0.0, -0.5, -1.0], np.float32),
    is_stopped=True,
    free_logprobs_T=np.array([-2.0, -0.5, -1.25], np.float32),
    is_masked_T=np.array([True, False, True]),
    is_grammar_end=True,
)
RECORD = {
    "sampled_logprobs": [0.0, -0.5, -1.0],
    "free_logprobs": [-2.0, -0.5, -1.25],
    "is_masked": [True, False, True],
    "num_masked": 2,
    "is_grammar_end": True,
}


def _generation() -> Generation:
    return Generation(GenerateRequest(token_ids=[1]), model="m", prompt=[1])


def _output(sequence: SampledSequence, *, is_partial: bool = False) -> SampleOutput:
    return SampleOutput(request_id="r", is_partial=is_partial, sequences=[sequence])


def _record(choice: dict[str, Any]) -> dict[str, Any]:
    return {name: choice[name] for name in RECORD if name in choice}


def test_a_whole_answer_has_both_logprobs_and_how_its_grammar_ended() -> None:
    """Would catch free logprobs in place of the sampled ones, and an end that passes for a sampled one."""
    (choice,) = _generation().whole(_output(HELD))["choices"]
    assert _record(choice) == RECORD


def test_chunks_have_the_record_of_their_own_tokens() -> None:
    """Would catch tokens told of twice, at the end too, where the whole comes again."""
    generation, told = _generation(), []
    for step in range(3):
        rows = slice(step, step + 1)
        assert HELD.free_logprobs_T is not None
        assert HELD.is_masked_T is not None
        part = replace(
            HELD,
            tokens_T=HELD.tokens_T[rows],
            logprobs_T=HELD.logprobs_T[rows],
            free_logprobs_T=HELD.free_logprobs_T[rows],
            is_masked_T=HELD.is_masked_T[rows],
            is_stopped=step == 2,
            is_grammar_end=step == 2,
        )
        told += generation.chunks(_output(part, is_partial=True))
    told += generation.chunks(_output(HELD))
    records = [_record(chunk["choices"][0]) for chunk in told]
    for name in ("sampled_logprobs", "free_logprobs", "is_masked"):
        assert [value for record in records for value in record[name]] == RECORD[name]
    assert [record["num_masked"] for record in records] == [1, 0, 1]
    assert [record["is_grammar_end"] for record in records] == [False, False, True]


def test_a_free_sample_has_no_record() -> None:
    free = replace(HELD, free_logprobs_T=None, is_masked_T=None, is_grammar_end=False)
    (choice,) = _generation().whole(_output(free))["choices"]
    assert _record(choice) == {}
