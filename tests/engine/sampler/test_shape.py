"""Bias, penalties and early ends against their definitions, and what is recorded of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import SampleOutput, SampleRequest
from cookhouse.engine.sampler.choose import Choice, normalizers
from cookhouse.engine.sampler.sequence import Sequence
from cookhouse.engine.sampler.shape import shape
from cookhouse.errors import InputError
from tests.engine.stepping import advance

LOGITS_V = torch.tensor([2.0, -1.0, 0.5, 1.5, -2.0, 0.0])
PROMPT = [0, 1]
SAMPLED = [3, 3, 4]


def _sequence(**fields: Any) -> Sequence:
    request = SampleRequest(
        request_id="r", base_model="m", snapshot_id=None, prompt_T=np.array(PROMPT), seed=0, **fields
    )
    return Sequence(
        request=request,
        index=0,
        tokens=[*PROMPT, *SAMPLED],
        num_prompt=len(PROMPT),
        max_total=99,
        seed=0,
        stop_tokens=frozenset({2}),
        stop_strings=(),
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"frequency_penalty": 0.5}, [2.0, -1.0, 0.5, 0.5, -2.5, 0.0]),
        ({"presence_penalty": 0.5}, [2.0, -1.0, 0.5, 1.0, -2.5, 0.0]),
        ({"repetition_penalty": 2.0}, [1.0, -2.0, 0.5, 0.75, -4.0, 0.0]),  # of the prompt too
        ({"logit_bias": {5: 3.0, 0: -2.0}}, [0.0, -1.0, 0.5, 1.5, -2.0, 3.0]),
        ({"min_tokens": 4}, [2.0, -1.0, -np.inf, 1.5, -2.0, 0.0]),
        ({"min_tokens": 3}, [2.0, -1.0, 0.5, 1.5, -2.0, 0.0]),  # as many are there
        ({"logit_bias": {3: 1.0}, "repetition_penalty": 2.0}, [1.0, -2.0, 0.5, 1.25, -4.0, 0.0]),
    ],
)
def test_logits_are_changed_as_each_field_says(fields: Mapping[str, Any], expected: list[float], device: str) -> None:
    logits_BV = LOGITS_V.to(device).repeat(2, 1)
    kept, choices = logits_BV.clone(), [Choice(1.0, -1, 1.0, 0.5)] * 2
    shaped = shape(logits_BV, [_sequence(**fields), _sequence(logit_bias={1: 1.0})])
    assert shaped.logits_RV[0].tolist() == expected
    assert shaped.logits_RV[1].tolist() == [2.0, 0.0, 0.5, 1.5, -2.0, 0.0]
    assert torch.equal(logits_BV, kept)  # those that another try would begin with
    sums = normalizers(shaped.logits_RV, choices)
    assert shaped.is_masked(choices, normalizers(kept, choices), sums) == [-np.inf in expected, False]


def _sample(engine: TorchEngine, folder: str, **fields: Any) -> SampleOutput:
    request = {"prompt_T": np.arange(9), "seed": 3, "max_tokens": 30, **fields}
    engine.submit_sample(SampleRequest(request_id="r", base_model=folder, snapshot_id=None, **request))
    outputs: list[SampleOutput] = []
    while engine.has_samples():
        outputs += advance(engine)
    return outputs[-1]


END = 256


def test_nothing_ends_a_sample_before_its_least_length(engine: TorchEngine, qwen3_folder: str) -> None:
    wants_end = {"logit_bias": {END: 100.0}}
    (at_once,) = _sample(engine, qwen3_folder, **wants_end).sequences
    (later,) = _sample(engine, qwen3_folder, **wants_end, min_tokens=5).sequences
    (never,) = _sample(engine, qwen3_folder, **wants_end, ignore_eos=True).sequences
    (by_stop,) = _sample(engine, qwen3_folder, **wants_end, ignore_eos=True, stop=[END]).sequences
    assert at_once.tokens_T.tolist() == [END]
    assert [*later.tokens_T.tolist()].index(END) == 5
    assert later.is_stopped
    assert never.tokens_T.tolist() == [END] * 30
    assert not never.is_stopped
    assert by_stop.tokens_T.tolist() == [END]


def test_a_stop_string_waits_for_the_least_length_too(engine: TorchEngine, qwen3_folder: str) -> None:
    said = {"logit_bias": {64: 100.0}, "stop": ["a"]}
    assert len(_sample(engine, qwen3_folder, **said).sequences[0].tokens_T) == 1
    assert len(_sample(engine, qwen3_folder, **said, min_tokens=7).sequences[0].tokens_T) == 7


def test_penalties_leave_the_free_logprobs_in_the_record(engine: TorchEngine, qwen3_folder: str) -> None:
    fields = {"topk_sample_logprobs": 264, "max_tokens": 1}
    (free,) = _sample(engine, qwen3_folder, **fields).sequences
    (pushed,) = _sample(engine, qwen3_folder, **fields, logit_bias={7: 50.0}).sequences
    assert pushed.tokens_T.tolist() == [7]
    assert free.topk_tokens_TK is not None
    assert free.topk_logprobs_TK is not None
    assert pushed.free_logprobs_T is not None
    of_seven = free.topk_logprobs_TK[0][free.topk_tokens_TK[0] == 7]
    assert pushed.free_logprobs_T == pytest.approx(of_seven, abs=1e-6)
    assert pushed.logprobs_T[0] > -1e-3
    assert pushed.is_masked_T is not None
    assert not pushed.is_masked_T.any()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"frequency_penalty": 2.1}, "frequency_penalty is 2.1"),
        ({"presence_penalty": float("nan")}, "presence_penalty is nan"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"min_p": 1.5}, "min_p is 1.5"),
        ({"min_tokens": 31}, "min_tokens is 31"),
        ({"logit_bias": {264: 1.0}}, "token 264"),
        ({"logit_bias": {1: 101.0}}, "from -100 to 100"),
        ({"logit_bias": dict.fromkeys(range(1025), 0.0)}, "may have 1024"),
    ],
)
def test_values_out_of_range_are_refused(
    engine: TorchEngine, qwen3_folder: str, fields: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        _sample(engine, qwen3_folder, **fields)
