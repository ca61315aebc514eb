"""Catches samples of a model with recurrent layers that go on from a wrong state, against `transformers`' own."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from cookhouse.engine.contract import SampleOutput, SampleRequest
from cookhouse.engine.engine import SampleFailure
from cookhouse.engine.model.attention import PackedLayout
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.sampler import Sampler
from cookhouse.engine.sampler.scheduler import Plan
from cookhouse.engine.sampler.sequence import Sequence as Sampled
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.families import load_reference, save_family
from tests.engine.numerics import WAYS, assert_logprobs_near

NUM_NEW = 12
RNG = np.random.default_rng(3)
LONG = RNG.integers(0, 256, 200).tolist()
OTHER = RNG.integers(0, 256, 70).tolist()
# Alone, at and around the ends of chunks; then some that share a beginning, three of them as far as none before.
PROMPTS = [[7], OTHER[:5], OTHER[:64], OTHER[:65], LONG[:150], LONG, LONG[:100] + OTHER[:20], LONG[:100] + OTHER[20:50]]
PROMPTS += [LONG[:100] + OTHER[50:], LONG]
Reference = Callable[[Sequence[int]], list[int]]


@pytest.fixture(scope="module", params=["qwen3_5", "qwen3_5_moe_text"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_family(tmp_path_factory.mktemp("model"), str(request.param))


@pytest.fixture(scope="module")
def base(folder: str, device: str) -> BaseModel:
    return BaseModel.load(folder, torch.device(device), torch.float32)


@pytest.fixture(scope="module")
def generate(folder: str) -> Reference:
    """The greedy tokens of `transformers`, one prompt at a time, with its own cache."""
    model: Any = load_reference(folder, attn_implementation="eager")
    known: dict[tuple[int, ...], list[int]] = {}

    def tokens_of(prompt: Sequence[int]) -> list[int]:
        if tuple(prompt) not in known:
            options = {"max_new_tokens": NUM_NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            tokens = torch.tensor([prompt])
            # Without a mask it would take tokens like the padding for padding.
            found = model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)
            known[tuple(prompt)] = found[0, len(prompt) :].tolist()
        return known[tuple(prompt)]

    return tokens_of


def _ask(request_id: str, prompt: Sequence[int], **options: Any) -> SampleRequest:
    settings = {"max_tokens": NUM_NEW, "temperature": 0.0, "stop": [], **options}
    return SampleRequest(
        request_id=request_id, base_model="m", snapshot_id=None, prompt_T=np.array(prompt), seed=0, **settings
    )


def _drain(sampler: Sampler, outputs: dict[str, SampleOutput | SampleFailure]) -> None:
    while sampler.has_work:
        outputs |= {output.request_id: output for output in sampler.step()}


def _check(outputs: dict[str, Any], prompts: Sequence[Sequence[int]], generate: Reference) -> None:
    for index, prompt in enumerate(prompts):
        for sequence in outputs[str(index)].sequences:
            assert sequence.tokens_T.tolist() == generate(prompt), f"prompt {index}"


@pytest.mark.parametrize("budget_tokens", [2048, 50], ids=["whole prompts", "prompts in pieces"])
def test_greedy_tokens_are_those_of_transformers(base: BaseModel, generate: Reference, budget_tokens: int) -> None:
    """Would catch a state that is not the sequence's own: of a fork, a known beginning, a piece, or a neighbor."""
    sampler = Sampler(base, 2**22)
    sampler._scheduler.budget_tokens = budget_tokens
    outputs: dict[str, SampleOutput | SampleFailure] = {}
    for index, prompt in enumerate(PROMPTS):
        sampler.submit(_ask(str(index), prompt, num_samples=1 + index % 3), None)
        for _ in range(4):  # the next one is read while these decode
            outputs |= {output.request_id: output for output in sampler.step()}
    _drain(sampler, outputs)
    _check(outputs, PROMPTS, generate)
    reused = [outputs[str(index)].num_reused_tokens for index in range(len(PROMPTS))]  # type: ignore[union-attr]
    # The second one that begins as far as another leaves a state there; whole prompts leave one before their end.
    assert reused == [0, 0, 0, 0, 0, 128, 0, 64, 64, 192]


def test_sequences_that_give_way_go_on_as_if_they_had_not(
    base: BaseModel, generate: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a state that is kept although its keys and values are gone, or the reverse."""
    sampler = Sampler(base, 2 * 18 * 16 * base.cache_shape.num_features * 4)
    assert sampler._scheduler.blocks.num_blocks == 18
    preempt, given_way = sampler._scheduler._preempt, []

    def watch(sequence: Sampled, plan: Plan) -> None:
        given_way.append(sequence)
        preempt(sequence, plan)

    monkeypatch.setattr(sampler._scheduler, "_preempt", watch)
    outputs: dict[str, SampleOutput | SampleFailure] = {}
    prompts = [LONG[:79], OTHER + LONG[:9], LONG[60:139]]  # six blocks each with two samples, and eight at their end
    for index, prompt in enumerate(prompts):
        sampler.submit(_ask(str(index), prompt, num_samples=2), None)
    _drain(sampler, outputs)
    assert given_way
    _check(outputs, prompts, generate)


@pytest.mark.slow
def test_a_pass_that_failed_is_repeated_from_where_it_began(
    base: BaseModel, generate: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a state that a failed pass has moved on: those beside the one to blame would read a token twice."""
    sampler = Sampler(base, 2**22)
    bad = [13, 13, 13]
    attention = base.decoder.layers[1].self_attn  # type: ignore[union-attr, index]
    forward = attention.forward
    is_bad = False
    read = sampler._read

    def fail(*arguments: Any, **settings: Any) -> Any:
        if is_bad:
            raise RuntimeError("13 is bad luck")
        return forward(*arguments, **settings)

    def watch(pieces: Any) -> Any:
        nonlocal is_bad
        is_bad = any(piece.sequence.tokens[:3] == bad for piece in pieces)
        return read(pieces)

    monkeypatch.setattr(attention, "forward", fail)
    monkeypatch.setattr(sampler, "_read", watch)
    outputs: dict[str, SampleOutput | SampleFailure] = {}
    sampler.submit(_ask("0", LONG, num_samples=2), None)
    for _ in range(3):
        sampler.step()
    sampler.submit(_ask("bad", bad), None)
    sampler.submit(_ask("1", OTHER), None)
    _drain(sampler, outputs)
    assert isinstance(outputs["bad"], SampleFailure)
    _check(outputs, [LONG, OTHER], generate)
    assert not any(sampler._scheduler.states._num_users)  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_logprobs_of_samples_are_those_of_a_packed_pass(folder: str, device: str, dtype: torch.dtype) -> None:
    """Would catch a state that is rounded from token to token, which drifts from what the trainer computes."""
    base = BaseModel.load(folder, torch.device(device), dtype)
    sampler = Sampler(base, 2**22)
    outputs: dict[str, SampleOutput | SampleFailure] = {}
    sampler.submit(_ask("0", LONG, max_tokens=200, temperature=1.0), None)
    _drain(sampler, outputs)
    (sequence,) = outputs["0"].sequences  # type: ignore[union-attr]
    tokens_T = torch.tensor([*LONG, *sequence.tokens_T], device=device)
    with torch.no_grad():
        layout = PackedLayout([len(tokens_T)], base.device)
        hidden_TH = base.hidden(tokens_T, torch.arange(len(tokens_T), device=device), layout, ())
        logprobs_TV = torch.log_softmax(base.head.logits(hidden_TH, ()).float(), -1).cpu()
    wanted = logprobs_TV[len(LONG) - 1 : -1].gather(1, tokens_T[len(LONG) :, None].cpu())[:, 0]
    assert_logprobs_near(sequence.logprobs_T, wanted.numpy(), WAYS[str(dtype).removeprefix("torch.")])


def test_states_are_counted_in_the_memory_of_the_cache(base: BaseModel) -> None:
    """Would catch a cache that takes its bytes twice over, once for blocks and once for states."""
    num_bytes = 2**20
    sampler = Sampler(base, num_bytes)
    assert num_bytes / 2 <= sampler.unused_bytes <= num_bytes
    before = sampler.unused_bytes
    sampler.submit(_ask("0", LONG), None)
    sampler.step()
    block_bytes = base.cache_shape.num_features * 16 * 4
    # After the prompt one state that goes on, and one that is kept.
    assert before - sampler.unused_bytes == 13 * block_bytes + 2 * base.state_bytes
    assert base.state_bytes == 4 * (8 * 16 * 8 + 3 * 128)


def test_vocabulary_and_context_are_those_of_the_config(base: BaseModel) -> None:
    """Would catch a test that compares two models of another size."""
    assert base.info.vocab_size == VOCAB_SIZE
    assert len(LONG) + NUM_NEW < base.info.max_context_tokens
