"""Samples that keep to a grammar: what is drawn, what is recorded of it, and how it ends."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher
from torch import Tensor

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import (
    ForwardBackward,
    ForwardBackwardOutput,
    SampledSequence,
    SampleOutput,
    SampleRequest,
    TrainingDatum,
)
from cookhouse.engine.sampler import Sampler
from cookhouse.engine.sampler.draw import draw
from cookhouse.engine.sampler.grammar import Constraint
from cookhouse.errors import InputError
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.numerics import assert_logprobs_near
from tests.engine.stepping import advance

Ask = Callable[..., SampleRequest]
PROMPT_T = np.random.default_rng(5).integers(0, 256, 37)
END = 256
ANYTHING = LLMatcher.grammar_from_lark(f"start: <[0-{VOCAB_SIZE - 1}]>*")
LETTERS = LLMatcher.grammar_from_regex("[a-f]{5,40}")
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 5}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["city", "n"],
    "additionalProperties": False,
}


def _of_schema(schema: Mapping[str, Any]) -> str:
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})


@pytest.fixture
def ask(engine: TorchEngine, add_model: Callable[..., str], qwen3_folder: str) -> Ask:
    """A request for the weights of one trained model; `engine` holds its snapshot."""
    engine.snapshot(add_model("m", rank=8), "snapshot")

    def build(request_id: str = "r", **changes: object) -> SampleRequest:
        fields: dict[str, Any] = {"prompt_T": PROMPT_T, "seed": 0, "snapshot_id": "snapshot", "max_tokens": 60}
        return SampleRequest(request_id=request_id, base_model=qwen3_folder, **(fields | changes))

    return build


def _sample(engine: TorchEngine, *requests: SampleRequest) -> dict[str, SampleOutput]:
    for request in requests:
        engine.submit_sample(request)
    outputs: dict[str, SampleOutput] = {}
    while engine.has_samples():
        outputs |= {output.request_id: output for output in advance(engine)}
    return outputs


def _text(sequence: SampledSequence) -> str:
    return bytes(_BYTES[token] for token in sequence.tokens_T if token < len(_BYTES)).decode()


def _byte_order() -> list[int]:
    """The byte of each token of the tests' tokenizer, which has the letters of bytes in order."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printed]
    letters = {chr(byte): byte for byte in printed} | {chr(0x100 + place): byte for place, byte in enumerate(others)}
    return [letters[letter] for letter in sorted(letters)]


_BYTES = _byte_order()


def test_a_grammar_that_forbids_nothing_changes_no_bit(engine: TorchEngine, ask: Ask) -> None:
    """Would catch a draw that depends on there being a mask, and a neighbor's mask on another row."""
    long = LLMatcher.grammar_from_regex("[a-f]{200}")
    free = _sample(engine, ask(num_samples=3), ask("free"), ask("neighbor", stop=[]))
    held = _sample(engine, ask(num_samples=3, grammar=ANYTHING), ask("free"), ask("neighbor", grammar=long))
    for name in ("r", "free"):
        for one, other in zip(free[name].sequences, held[name].sequences, strict=True):
            assert one.tokens_T.tolist() == other.tokens_T.tolist()
            assert one.logprobs_T.tobytes() == other.logprobs_T.tobytes()
            assert one.is_stopped == other.is_stopped
    for sequence in held["r"].sequences:
        assert sequence.free_logprobs_T is not None
        assert sequence.free_logprobs_T.tobytes() == sequence.logprobs_T.tobytes()
        assert sequence.is_masked_T is not None
        assert not sequence.is_masked_T.any()
    assert held["free"].sequences[0].free_logprobs_T is None
    assert {*_text(held["neighbor"].sequences[0])} <= {*"abcdef"}


@pytest.fixture
def drawn_logits(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The model's logits (V,) of each step of one sequence, in float64, as they come to be drawn from."""
    logits: list[np.ndarray] = []

    def record(sequences: Sequence[Any], logits_BV: Tensor, rows: Sequence[int]) -> object:
        logits.extend(logits_BV[list(rows)].double().numpy())
        return draw(sequences, logits_BV, rows)

    monkeypatch.setattr("cookhouse.engine.sampler.sampler.draw", record)
    return logits


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_the_free_ones_renormalized_over_what_is_allowed(
    engine: TorchEngine, ask: Ask, drawn_logits: list[np.ndarray], temperature: float
) -> None:
    """The distribution of each step against one in float64, of the same logits. The temperatures divide exactly."""
    request = ask(grammar=_of_schema(CITY), topk_sample_logprobs=VOCAB_SIZE, temperature=temperature)
    (sequence,) = _sample(engine, request)["r"].sequences
    assert sequence.topk_tokens_TK is not None
    assert sequence.topk_logprobs_TK is not None
    assert sequence.free_logprobs_T is not None
    assert sequence.is_masked_T is not None
    assert len(drawn_logits) == len(sequence.tokens_T)
    for step, token in enumerate(sequence.tokens_T):
        free_V = drawn_logits[step] / temperature
        free_V -= np.logaddexp.reduce(free_V)
        masked_V = np.empty(VOCAB_SIZE)
        masked_V[sequence.topk_tokens_TK[step]] = sequence.topk_logprobs_TK[step]
        allowed_V = np.isfinite(masked_V)
        kept = np.exp(free_V[allowed_V]).sum()
        assert np.exp(masked_V[allowed_V]).sum() == pytest.approx(1, abs=1e-6)
        assert masked_V[allowed_V] == pytest.approx(free_V[allowed_V] - np.log(kept), abs=1e-6)
        assert sequence.logprobs_T[step] == pytest.approx(free_V[token] - np.log(kept), abs=1e-6)
        assert sequence.free_logprobs_T[step] == pytest.approx(free_V[token], abs=1e-6)
        assert sequence.is_masked_T[step] == (kept < 1 - 1e-6)
    assert sequence.is_masked_T.any()


def test_steps_that_no_mask_touched_have_the_trainers_logprobs(engine: TorchEngine, ask: Ask) -> None:
    """The rule of training: the free logprob, without the steps whose mask took probability away."""
    grammar = LLMatcher.grammar_from_lark(f'start: <[0-{END - 1}]> "go" <[0-{VOCAB_SIZE - 1}]>*')
    (sequence,) = _sample(engine, ask(grammar=grammar))["r"].sequences
    tokens = np.concatenate([PROMPT_T, sequence.tokens_T])
    datum = TrainingDatum(tokens_T=tokens[:-1], loss_fn_inputs={"target_tokens": tokens[1:]})
    request = ForwardBackward(model_id="m", data_D=[datum], loss_fn="cross_entropy", forward_only=True)
    (output,) = engine.forward_backward([request])
    assert isinstance(output, ForwardBackwardOutput)
    trainer_T = np.asarray(output.logprobs_D[0])[len(PROMPT_T) - 1 :]
    assert sequence.is_masked_T is not None
    assert sequence.free_logprobs_T is not None
    assert sequence.is_masked_T.tolist()[1:3] == [True, True]
    assert not sequence.is_masked_T[3:].any()
    assert_logprobs_near(sequence.free_logprobs_T, trainer_T)
    assert_logprobs_near(sequence.logprobs_T[~sequence.is_masked_T], trainer_T[~sequence.is_masked_T])
    assert (sequence.logprobs_T[1:3] > trainer_T[1:3]).all()


def test_a_grammar_ends_without_a_token_that_was_not_drawn(engine: TorchEngine, ask: Ask) -> None:
    outputs = _sample(
        engine,
        ask("json", num_samples=4, grammar=_of_schema(CITY)),
        ask("letters", grammar=LETTERS, logit_bias={END: 20.0}),
        ask("cut", grammar=_of_schema(CITY), max_tokens=6),
    )
    texts = [_text(sequence) for sequence in outputs["json"].sequences]
    for sequence, text in zip(outputs["json"].sequences, texts, strict=True):
        jsonschema.validate(json.loads(text), CITY)
        assert sequence.is_stopped
        assert sequence.is_grammar_end
        assert sequence.tokens_T[-1] != END
    assert len(set(texts)) > 1
    (letters,) = outputs["letters"].sequences
    assert letters.tokens_T[-1] == END  # more might have followed, so that its end was drawn
    assert letters.is_stopped
    assert not letters.is_grammar_end
    assert len(_text(letters)) >= 5
    (cut,) = outputs["cut"].sequences
    assert not cut.is_stopped
    assert not cut.is_grammar_end


def test_a_sample_that_was_set_aside_keeps_its_place_in_the_grammar(
    engine: TorchEngine, ask: Ask, qwen3_folder: str
) -> None:
    """Sampling in a cache that holds one of them at a time. Would catch a grammar that begins anew."""
    request = ask(num_samples=3, grammar=LLMatcher.grammar_from_regex("(abcdef){9}"), snapshot_id=None, max_tokens=54)
    expected = [_text(sequence) for sequence in _sample(engine, request)["r"].sequences]
    blocks = -(-(len(PROMPT_T) + 54) // 16) + 1
    engine._samplers[qwen3_folder] = Sampler(engine._bases[qwen3_folder], blocks * 16 * 2 * 2 * 2 * 16 * 4)
    assert [_text(sequence) for sequence in _sample(engine, request)["r"].sequences] == expected == ["abcdef" * 9] * 3


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        (_of_schema({"not": {"type": "string"}}), "not"),
        ("start: (", "grammar cannot be used"),
        ("start: " + "a" * 2**18, "at most 262144"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_refused_at_once(
    engine: TorchEngine, ask: Ask, grammar: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        engine.submit_sample(ask(grammar=grammar))
    assert not engine.has_samples()


@pytest.mark.parametrize("changes", [{"ignore_eos": True}, {"min_tokens": 2}, {"stop": []}])
def test_a_grammar_alone_says_where_it_ends(engine: TorchEngine, ask: Ask, changes: Mapping[str, Any]) -> None:
    with pytest.raises(InputError, match="says where an answer ends"):
        engine.submit_sample(ask(grammar=LETTERS, **changes))


def test_a_grammar_that_cannot_be_followed_fails_its_request_alone(
    engine: TorchEngine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(_self: Constraint, _words_W: np.ndarray) -> None:
        raise InputError("the grammar is too much to follow")

    monkeypatch.setattr(Constraint, "allow", give_up)
    engine.submit_sample(ask("bad", grammar=LETTERS, num_samples=2))
    engine.submit_sample(ask("good", max_tokens=3))
    outputs = [output for _ in range(3) for output in engine.step_samples()]
    assert [(o.request_id, isinstance(o, SampleOutput)) for o in outputs] == [("bad", False), ("good", True)]
