"""Samples that are told as they come."""

from collections import defaultdict

import numpy as np
import pytest

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import SampleOutput, SampleRequest
from tests.engine.sampler.test_sampler import PROMPT_T, Ask, ask
from tests.engine.stepping import advance

__all__ = ["ask"]


def _outputs(engine: TorchEngine, *requests: SampleRequest) -> dict[str, list[SampleOutput]]:
    for request in requests:
        engine.submit_sample(request)
    outputs: dict[str, list[SampleOutput]] = defaultdict(list)
    while engine.has_samples():
        for output in advance(engine):
            outputs[output.request_id].append(output)
    return outputs


@pytest.mark.parametrize("num_samples", [1, 3])
def test_the_tokens_of_the_steps_are_those_of_the_whole(engine: TorchEngine, ask: Ask, num_samples: int) -> None:
    """Would catch a token that is told twice or never, or to another sample."""
    settings: dict[str, object] = {"num_samples": num_samples, "seed": 4, "topk_sample_logprobs": 2, "max_tokens": 9}
    told = _outputs(engine, ask("a", **settings, is_streamed=True), ask("b", **settings))
    *steps, whole = told["a"]
    assert all(step.is_partial for step in steps)
    assert len(steps) == 9
    (plain,) = told["b"]
    assert not whole.is_partial
    assert not plain.is_partial
    for index, sequence in enumerate(whole.sequences):
        parts = [step.sequences[index] for step in steps]
        assert sequence.tokens_T.tolist() == plain.sequences[index].tokens_T.tolist()
        assert np.concatenate([part.tokens_T for part in parts]).tolist() == sequence.tokens_T.tolist()
        assert np.concatenate([part.logprobs_T for part in parts]).tolist() == sequence.logprobs_T.tolist()
        ranked = [part.topk_tokens_TK for part in parts if part.topk_tokens_TK is not None]
        assert np.concatenate(ranked).tolist() == np.asarray(sequence.topk_tokens_TK).tolist()


def test_the_last_token_of_a_stopped_sample_says_so(engine: TorchEngine, ask: Ask) -> None:
    (free,) = _outputs(engine, ask(temperature=0.0))["r"][0].sequences
    stop = int(free.tokens_T[4])
    *steps, whole = _outputs(engine, ask(temperature=0.0, stop=[stop], is_streamed=True))["r"]
    assert [step.sequences[0].is_stopped for step in steps] == [False] * (len(steps) - 1) + [True]
    assert len(steps) == len(whole.sequences[0].tokens_T)


def test_what_was_asked_about_a_prompt_comes_with_its_first_token(engine: TorchEngine, ask: Ask) -> None:
    first, *_, whole = _outputs(engine, ask(prompt_logprobs=True, is_streamed=True))["r"]
    assert first.prompt_logprobs_T is not None
    assert whole.prompt_logprobs_T is not None
    assert np.isfinite(first.prompt_logprobs_T[1:]).all()
    assert first.prompt_logprobs_T[1:].tolist() == whole.prompt_logprobs_T[1:].tolist()


def test_a_canceled_request_is_not_told_of(engine: TorchEngine, ask: Ask) -> None:
    engine.submit_sample(ask("gone", is_streamed=True, max_tokens=50))
    engine.submit_sample(ask("stays", is_streamed=True, max_tokens=5, prompt_T=PROMPT_T[:9]))
    assert {output.request_id for output in advance(engine)} == {"gone", "stays"}
    engine.cancel_sample("gone")
    told = set()
    while engine.has_samples():
        told |= {output.request_id for output in advance(engine)}
    assert told == {"stays"}
