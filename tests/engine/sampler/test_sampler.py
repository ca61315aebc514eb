"""Parity of cached, batched decoding with full forward passes, and the ends of samples."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import (
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    PromptTargets,
    SampleOutput,
    SampleRequest,
    TrainingDatum,
)
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.sampler import Sampler
from cookhouse.engine.sampler.runner import Reading
from cookhouse.engine.sampler.scheduler import Piece
from cookhouse.errors import InputError
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.numerics import MODEL, assert_logprobs_near
from tests.engine.stepping import advance

Ask = Callable[..., SampleRequest]
PROMPT_T = np.random.default_rng(5).integers(0, 256, 37)


@pytest.fixture
def ask(engine: TorchEngine, add_model: Callable[..., str], qwen3_folder: str) -> Ask:
    """A request for the weights of one trained model; `engine` holds its snapshot."""
    engine.snapshot(add_model("m", rank=8), "snapshot")

    def build(request_id: str = "r", **changes: object) -> SampleRequest:
        fields: dict[str, object] = {
            "prompt_T": PROMPT_T,
            "seed": 0,
            "stop": [],
            "snapshot_id": "snapshot",
            "max_tokens": 12,
        }
        return SampleRequest(request_id=request_id, base_model=qwen3_folder, **(fields | changes))  # type: ignore[arg-type]

    return build


def _sample(engine: TorchEngine, *requests: SampleRequest) -> dict[str, SampleOutput]:
    for request in requests:
        engine.submit_sample(request)
    outputs: dict[str, SampleOutput] = {}
    while engine.has_samples():
        outputs |= {output.request_id: output for output in advance(engine)}
    return outputs


def _trainer_logprobs(engine: TorchEngine, tokens: np.ndarray) -> np.ndarray:
    """Log-probability of tokens[1:] by the training path."""
    datum = TrainingDatum(tokens_T=tokens[:-1], loss_fn_inputs={"target_tokens": tokens[1:]})
    request = ForwardBackward(model_id="m", data_D=[datum], loss_fn="cross_entropy", forward_only=True)
    (output,) = engine.forward_backward([request])
    assert isinstance(output, ForwardBackwardOutput)
    return np.asarray(output.logprobs_D[0])


def test_sampler_logprobs_equal_the_trainers(engine: TorchEngine, ask: Ask) -> None:
    output = _sample(engine, ask(num_samples=3, seed=1, prompt_logprobs=True, max_tokens=60))["r"]
    for sequence in output.sequences:
        expected = _trainer_logprobs(engine, np.concatenate([PROMPT_T, sequence.tokens_T]))
        assert_logprobs_near(sequence.logprobs_T, expected[len(PROMPT_T) - 1 :])
    assert output.prompt_logprobs_T is not None
    assert np.isnan(output.prompt_logprobs_T[0])
    assert_logprobs_near(output.prompt_logprobs_T[1:], expected[: len(PROMPT_T) - 1])


def test_greedy_decoding_equals_argmax_of_full_forwards(engine: TorchEngine, ask: Ask) -> None:
    (sequence,) = _sample(engine, ask(temperature=0.0, max_tokens=20))["r"].sequences
    tokens = PROMPT_T
    for token in sequence.tokens_T:
        candidates = [np.append(tokens, c) for c in range(VOCAB_SIZE)]
        data_D = [TrainingDatum(tokens_T=c[:-1], loss_fn_inputs={"target_tokens": c[1:]}) for c in candidates[:1]]
        data_D = [
            TrainingDatum(
                tokens_T=tokens,
                loss_fn_inputs={"target_tokens": np.tile(np.arange(VOCAB_SIZE), (len(tokens), 1))},
            )
        ]
        request = ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy", forward_only=True)
        (output,) = engine.forward_backward([request])
        assert isinstance(output, ForwardBackwardOutput)
        assert int(output.logprobs_D[0][-1].argmax()) == token
        tokens = np.append(tokens, token)


def test_samples_do_not_depend_on_what_else_is_in_the_batch(engine: TorchEngine, ask: Ask) -> None:
    requests = [
        ask(
            f"r{i}",
            prompt_T=PROMPT_T[: 5 + 3 * i],
            num_samples=1 + i % 3,
            seed=i,
            max_tokens=5 + 4 * i,
            snapshot_id="snapshot" if i % 2 else None,
            temperature=i % 3 / 2,
            top_p=0.9 if i % 4 == 0 else 1.0,
        )
        for i in range(10)
    ]
    together = _sample(engine, *requests)
    for request in requests:
        alone = _sample(engine, request)[request.request_id]
        for one, other in zip(alone.sequences, together[request.request_id].sequences, strict=True):
            assert one.tokens_T.tolist() == other.tokens_T.tolist()


def test_seeds_repeat_and_samples_of_one_request_differ(engine: TorchEngine, ask: Ask) -> None:
    first, second, other = (
        [s.tokens_T.tolist() for s in _sample(engine, ask(num_samples=4, seed=seed))["r"].sequences]
        for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other
    assert len({tuple(tokens) for tokens in first}) == 4


def test_stop_tokens_end_a_sample_and_are_included(engine: TorchEngine, ask: Ask) -> None:
    (free,) = _sample(engine, ask(temperature=0.0))["r"].sequences
    stop = int(free.tokens_T[4])
    (stopped,) = _sample(engine, ask(temperature=0.0, stop=[stop]))["r"].sequences
    assert stopped.is_stopped
    assert stopped.tokens_T.tolist() == free.tokens_T[: free.tokens_T.tolist().index(stop) + 1].tolist()
    assert not free.is_stopped


def test_stop_strings_end_a_sample_where_they_complete(engine: TorchEngine, ask: Ask, qwen3_folder: str) -> None:
    (free,) = _sample(engine, ask(seed=3, max_tokens=40))["r"].sequences
    tokenizer = engine._bases[qwen3_folder].tokenizer
    printable = [i for i in range(38) if all(33 <= ord(c) < 127 for c in tokenizer.decode(free.tokens_T[i : i + 2]))]
    stop = tokenizer.decode(free.tokens_T[printable[0] : printable[0] + 2])
    (stopped,) = _sample(engine, ask(seed=3, max_tokens=40, stop=[stop, "never there"]))["r"].sequences
    assert stopped.is_stopped
    assert stopped.tokens_T.tolist() == free.tokens_T[: printable[0] + 2].tolist()


def test_a_stop_string_is_looked_for_in_what_was_sampled(engine: TorchEngine, ask: Ask, qwen3_folder: str) -> None:
    """Would catch a sample that ends at its first token because the prompt ends in the beginning of a stop."""
    decode = engine._bases[qwen3_folder].tokenizer.decode
    letter = next(token for token in range(VOCAB_SIZE) if decode([token]) == "a")
    prompt_T = np.append(PROMPT_T, letter)
    for seed in range(100):
        (free,) = _sample(engine, ask(prompt_T=prompt_T, seed=seed, max_tokens=3))["r"].sequences
        text = decode(free.tokens_T)
        if len(text) == 3 and text[0].isascii() and "a" not in text:
            break
    else:
        raise AssertionError("no sample began with a character of its own")
    (asked,) = _sample(engine, ask(prompt_T=prompt_T, seed=seed, max_tokens=3, stop=["a" + text[0]]))["r"].sequences
    assert asked.tokens_T.tolist() == free.tokens_T.tolist()
    assert not asked.is_stopped


@pytest.mark.parametrize("kind", ["token", "text", "character"])
def test_every_sample_of_a_request_ends_at_its_stop(
    engine: TorchEngine, ask: Ask, qwen3_folder: str, kind: str
) -> None:
    """Would catch stops that only the first of several samples has, or a character of several tokens that is missed."""
    base = engine._bases[qwen3_folder]
    decode = base.tokenizer.decode
    free = [one.tokens_T.tolist() for one in _sample(engine, ask(seed=3, num_samples=6, max_tokens=60))["r"].sequences]
    last = free[-1]
    if kind == "token":
        stop = last[5]
    elif kind == "text":
        stop = next(text for i in range(58) if len(text := decode(last[i : i + 2])) == 2 and text.isascii())
    else:
        stop = next(one for tokens in free[1:] for one in decode(tokens) if ord(one) > 127 and one != "\ufffd")

    def ends(tokens: list[int]) -> bool:
        return tokens[-1] in base.end_tokens or (tokens[-1] == stop if kind == "token" else stop in decode(tokens))

    stopped = _sample(engine, ask(seed=3, num_samples=6, max_tokens=60, stop=[stop]))["r"].sequences
    for tokens, one in zip(free, stopped, strict=True):
        expected = next((tokens[:end] for end in range(1, 61) if ends(tokens[:end])), tokens)
        assert one.tokens_T.tolist() == expected
    assert any(one.is_stopped for one in stopped[1:])


@pytest.mark.parametrize("stop", [None, ["never there"], [255]], ids=["none", "text", "token"])
def test_end_tokens_end_a_sample_whatever_else_does(
    engine: TorchEngine, ask: Ask, qwen3_folder: str, stop: Sequence[str] | Sequence[int] | None
) -> None:
    """Would catch a stop of the caller's own that takes the place of the model's: it would write the next document."""
    end = next(iter(engine._bases[qwen3_folder].end_tokens))
    for seed in range(200):
        (sequence,) = _sample(engine, ask(seed=seed, stop=stop, max_tokens=60, temperature=2.0))["r"].sequences
        if stop == [255] and sequence.tokens_T[-1] == 255:
            continue
        if sequence.is_stopped:
            assert sequence.tokens_T[-1] == end
            assert end not in sequence.tokens_T[:-1]
            return
    raise AssertionError("no sample met the end token")


def test_topk_prompt_logprobs_rank_the_candidates_of_each_position(engine: TorchEngine, ask: Ask) -> None:
    output = _sample(engine, ask(prompt_logprobs=True, topk_prompt_logprobs=VOCAB_SIZE))["r"]
    tokens_TK, logprobs_TK = output.topk_prompt_tokens_TK, output.topk_prompt_logprobs_TK
    assert tokens_TK is not None
    assert logprobs_TK is not None
    assert output.prompt_logprobs_T is not None
    assert (logprobs_TK[0] == -99999.0).all()
    assert (np.diff(logprobs_TK[1:], axis=1) <= 0).all()
    for t in range(1, len(PROMPT_T)):
        rank = tokens_TK[t].tolist().index(PROMPT_T[t])
        assert_logprobs_near(logprobs_TK[t, rank], output.prompt_logprobs_T[t])


def test_preemption_and_a_full_cache_change_nothing_but_time(engine: TorchEngine, ask: Ask, qwen3_folder: str) -> None:
    requests = [ask(f"r{i}", num_samples=3, seed=i, max_tokens=40, prompt_logprobs=True) for i in range(4)]
    roomy = _sample(engine, *requests)
    engine._samplers[qwen3_folder] = Sampler(engine._bases[qwen3_folder], cache_bytes=20 * 16 * 2 * 2 * 2 * 16 * 4)
    tight = _sample(engine, *requests)
    for name, output in roomy.items():
        for one, other in zip(output.sequences, tight[name].sequences, strict=True):
            assert one.tokens_T.tolist() == other.tokens_T.tolist()
        assert output.prompt_logprobs_T is not None
        assert_logprobs_near(output.prompt_logprobs_T[1:], tight[name].prompt_logprobs_T[1:])  # type: ignore[index]


def _count_reads(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions of prompts in each pass that reads some, as they happen."""
    lengths: list[int] = []
    run = sampler._runner.run

    def count(pieces: Sequence[Piece], weights: Sequence[Weights | None], *, with_hidden: bool) -> Reading:
        length = sum(piece.stop - piece.start for piece in pieces if not piece.is_decoding)
        if length:
            lengths.append(length)
        return run(pieces, weights, with_hidden=with_hidden)

    monkeypatch.setattr(sampler._runner, "run", count)
    return lengths


def test_a_known_prefix_is_skipped_and_changes_no_sample(
    engine: TorchEngine, ask: Ask, qwen3_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns of a conversation: each prompt is the last one with its sample and a few tokens more."""
    sampler = Sampler(engine._bases[qwen3_folder], cache_bytes=2**22)
    lengths = _count_reads(sampler, monkeypatch)
    prompt_T, num_known = PROMPT_T, 0
    for turn in range(3):
        request = ask(f"r{turn}", prompt_T=prompt_T, num_samples=2, seed=turn, max_tokens=30)
        engine._samplers[qwen3_folder] = sampler
        reused = _sample(engine, request)[f"r{turn}"]
        assert reused.num_reused_tokens == num_known
        assert lengths.pop(0) == len(prompt_T) - num_known
        engine._samplers[qwen3_folder] = Sampler(engine._bases[qwen3_folder], cache_bytes=2**22)
        fresh = _sample(engine, request)[f"r{turn}"]
        assert fresh.num_reused_tokens == 0
        for one, other in zip(reused.sequences, fresh.sequences, strict=True):
            assert one.tokens_T.tolist() == other.tokens_T.tolist()
            assert_logprobs_near(one.logprobs_T, other.logprobs_T)
        # The last sampled token was never computed.
        num_known = (len(prompt_T) + 30 - 1) // 16 * 16
        prompt_T = np.concatenate([prompt_T, reused.sequences[1].tokens_T, PROMPT_T[:5]])
    assert not lengths


def test_a_prefix_is_known_under_its_own_weights_only(engine: TorchEngine, ask: Ask) -> None:
    """Would catch keys found under weights published later, also under an old name or where old ones lay in memory."""
    hits = []
    for snapshot_id in ("snapshot", "snapshot", None, None):
        hits.append(_sample(engine, ask(snapshot_id=snapshot_id))["r"].num_reused_tokens)
    assert hits == [0, 32, 0, 32]
    serials = set()
    for _ in range(5):
        engine.delete_snapshot("snapshot")
        engine.snapshot("m", "snapshot")
        serials.add(engine._snapshot("snapshot")[1].serial)
        assert _sample(engine, ask())["r"].num_reused_tokens == 0
    assert len(serials) == 5


def test_a_prompt_read_in_pieces_is_scored_as_one_read_at_once(
    engine: TorchEngine, ask: Ask, qwen3_folder: str
) -> None:
    """Would catch a long prompt whose token after a piece is left out, or scored by a row of the next one."""
    targets = PromptTargets(positions_M=np.array([1, 8, 9, 16, 36]), tokens_M=np.arange(5))
    request = ask(prompt_logprobs=True, topk_prompt_logprobs=3, prompt_targets=targets)
    whole = _sample(engine, request)["r"]
    engine._samplers[qwen3_folder]._scheduler.budget_tokens = 8
    cut = _sample(engine, request)["r"]
    for name in ("prompt_logprobs_T", "topk_prompt_logprobs_TK", "target_logprobs_M"):
        one, other = getattr(whole, name), getattr(cut, name)
        first = 0 if name == "target_logprobs_M" else 1  # the first token is never scored
        assert_logprobs_near(other[first:], one[first:])


def test_prompts_are_scored_whole_although_they_are_known(engine: TorchEngine, ask: Ask) -> None:
    first, second = (_sample(engine, ask(prompt_logprobs=True, topk_prompt_logprobs=3))["r"] for _ in range(2))
    for name in ("prompt_logprobs_T", "topk_prompt_tokens_TK", "topk_prompt_logprobs_TK"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert second.num_reused_tokens == 0
    assert _sample(engine, ask())["r"].num_reused_tokens == 32


def test_cancelled_and_finished_requests_return_every_block(engine: TorchEngine, ask: Ask, qwen3_folder: str) -> None:
    _sample(engine, ask())
    sampler = engine._samplers[qwen3_folder]
    num_blocks = sampler.num_free_blocks
    for name in ("kept", "dropped"):
        engine.submit_sample(ask(name, num_samples=5, max_tokens=30))
    for _ in range(4):
        engine.step_samples()
    assert sampler.num_free_blocks < num_blocks
    engine.cancel_sample("dropped")
    engine.cancel_sample("dropped")
    assert list(_sample(engine)) == ["kept"]
    assert sampler.num_free_blocks == num_blocks


def test_a_snapshot_keeps_its_weights_while_training_goes_on(engine: TorchEngine, ask: Ask) -> None:
    before = _sample(engine, ask(temperature=0.0))["r"].sequences[0].tokens_T.tolist()
    engine._model("m").params.mul_(-3.0)
    assert _sample(engine, ask(temperature=0.0))["r"].sequences[0].tokens_T.tolist() == before
    engine.snapshot("m", "newer")
    assert _sample(engine, ask(temperature=0.0, snapshot_id="newer"))["r"].sequences[0].tokens_T.tolist() != before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_T": np.array([], np.int64)}, "prompt is empty"),
        ({"prompt_T": np.array([VOCAB_SIZE])}, f"holds token {VOCAB_SIZE}"),
        (
            {"prompt_T": np.zeros(512, np.int64)},
            r"exceeds the model's context window: 512 prompt tokens \+ 12 max_tokens > 512",
        ),
        ({"num_samples": 0}, "num_samples is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 476}, r"exceeds the model's context window: 37 prompt tokens \+ 476 max_tokens > 512"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": 1e-38}, "use 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"stop": [""]}, "stop holds ''"),
        ({"stop": ["a"] * 2000}, "may hold 1024"),
        ({"stop": ["b" * 513]}, "513 bytes, up to 513 in one; .* one 512"),
        ({"stop": ["c" * 500] * 40}, "20000 bytes, up to 500 in one; all together may have 16384"),
        ({"stop": [VOCAB_SIZE]}, "stop holds"),
        ({"snapshot_id": "none"}, "unknown snapshot"),
    ],
)
def test_bad_requests_are_refused_and_leave_nothing(
    engine: TorchEngine, ask: Ask, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        engine.submit_sample(ask(**changes))
    assert not engine.has_samples()


def test_the_context_ends_a_sample_that_asks_for_no_number_of_tokens(engine: TorchEngine, ask: Ask) -> None:
    (sequence,) = _sample(engine, ask(max_tokens=None))["r"].sequences
    assert len(PROMPT_T) + len(sequence.tokens_T) == 512
    assert not sequence.is_stopped


def test_bf16_stays_near_fp32(qwen3_folder: str) -> None:
    engine = TorchEngine(base_models=[qwen3_folder], precision="bfloat16")
    request = SampleRequest(
        request_id="r",
        base_model=qwen3_folder,
        snapshot_id=None,
        prompt_T=PROMPT_T,
        seed=0,
        max_tokens=1,
        prompt_logprobs=True,
    )
    exact = TorchEngine(base_models=[qwen3_folder], precision="float32")
    rounded, expected = (_sample(e, request)["r"].prompt_logprobs_T for e in (engine, exact))
    assert rounded is not None
    assert expected is not None
    assert torch.tensor(rounded[1:] - expected[1:]).abs().max() < 0.1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_fused_step_equals_torch(engine: TorchEngine, ask: Ask, qwen3_folder: str, precision: str) -> None:
    """Mixed adapters, a bare base model and unequal lengths; in bf16 the fused step keeps more digits than torch."""
    other = TorchEngine(base_models=[qwen3_folder], precision=precision)
    requests = [
        ask(
            f"r{i}",
            prompt_T=PROMPT_T[: 20 + 3 * i],
            num_samples=2,
            seed=i,
            max_tokens=20,
            snapshot_id=snapshot,
            prompt_logprobs=True,
        )
        for i, snapshot in enumerate(["snapshot", None, "second", "snapshot", "second", None])
    ]
    layouts = {"snapshot": engine._snapshot("snapshot")[1], "second": None}
    engine.create_model("other", qwen3_folder, LoraSpec(rank=3, seed=9, train_mlp=False))
    engine._model("other").params.add_(0.02)
    engine.snapshot("other", "second")
    layouts["second"] = engine._snapshot("second")[1]
    outputs = []
    for is_native in (True, False):
        for name, weights in layouts.items():
            assert weights is not None
            other._snapshots[name] = qwen3_folder, Weights(weights.layout, weights.flat.to(other._dtype))
        other._samplers[qwen3_folder] = Sampler(other._bases[qwen3_folder], cache_bytes=2**22, is_native=is_native)
        outputs.append(_sample(other, *requests))
    native, plain = outputs
    for name, output in native.items():
        for one, two in zip(output.sequences, plain[name].sequences, strict=True):
            if precision == "float32":
                assert one.tokens_T.tolist() == two.tokens_T.tolist()
                assert_logprobs_near(one.logprobs_T, two.logprobs_T)
        scores, expected = output.prompt_logprobs_T, plain[name].prompt_logprobs_T
        assert scores is not None
        assert expected is not None
        assert_logprobs_near(scores[1:], expected[1:], MODEL if precision == "float32" else 0.05)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_fused_pass_gives_the_same_bits_however_prompts_are_cut_and_whoever_is_beside(
    engine: TorchEngine, ask: Ask, qwen3_folder: str, precision: str
) -> None:
    """Would catch sums whose order depends on the number of rows, and prompts that miss their own earlier piece."""
    weights = engine._snapshot("snapshot")[1]
    assert weights is not None
    other = TorchEngine(base_models=[qwen3_folder], precision=precision)
    other._snapshots["snapshot"] = qwen3_folder, Weights(weights.layout, weights.flat.to(other._dtype))
    requests = [
        ask(f"r{i}", prompt_T=np.tile(PROMPT_T, 9)[: 11 + 79 * i], seed=i, snapshot_id=[None, "snapshot"][i % 2])
        for i in range(5)
    ]
    outputs = []
    for budget_tokens, batches in ((2048, [requests]), (23, [requests]), (2048, [[request] for request in requests])):
        sampler = Sampler(other._bases[qwen3_folder], cache_bytes=2**22)
        if sampler._runner._kernel is None:
            pytest.skip("there is no compiler, or the engine is on a GPU")
        sampler._scheduler.budget_tokens = budget_tokens
        other._samplers[qwen3_folder] = sampler
        outputs.append({name: output for batch in batches for name, output in _sample(other, *batch).items()})
    whole, *others = outputs
    for output in others:
        for name, expected in whole.items():
            np.testing.assert_array_equal(output[name].sequences[0].tokens_T, expected.sequences[0].tokens_T)
            np.testing.assert_array_equal(output[name].sequences[0].logprobs_T, expected.sequences[0].logprobs_T)


def test_targets_of_a_prompt_are_scored_where_they_were_asked(engine: TorchEngine, ask: Ask) -> None:
    """Would catch targets shifted by a position, dropped where none was asked before, or asked in vain of a cache."""
    whole = _sample(engine, ask(topk_prompt_logprobs=VOCAB_SIZE))["r"]
    tokens_TK, logprobs_TK = whole.topk_prompt_tokens_TK, whole.topk_prompt_logprobs_TK
    assert tokens_TK is not None
    assert logprobs_TK is not None
    positions_M, asked_M = np.array([2, 2, 7, 36, 36]), np.array([9, 9, 200, 0, 255])
    targets = PromptTargets(positions_M=positions_M, tokens_M=asked_M)
    output = _sample(engine, ask(prompt_targets=targets))["r"]
    expected = [
        logprobs_TK[t, tokens_TK[t].tolist().index(token)] for t, token in zip(positions_M, asked_M, strict=True)
    ]
    assert output.target_logprobs_M is not None
    # Chunks of other sizes, and log_softmax in fp32 against a normalizer in fp64.
    np.testing.assert_allclose(output.target_logprobs_M, expected, atol=1e-5)
    assert output.prompt_logprobs_T is None


def test_targets_outside_the_vocabulary_are_refused(engine: TorchEngine, ask: Ask) -> None:
    targets = PromptTargets(positions_M=np.array([1]), tokens_M=np.array([VOCAB_SIZE]))
    with pytest.raises(InputError, match="target_prompt_logprobs holds token 264 at position 0"):
        engine.submit_sample(ask(prompt_targets=targets))


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 0.7, "top_k": 2}, {"top_p": 0.5}])
def test_candidates_of_sampled_tokens_are_of_the_distribution_sampled_from(
    engine: TorchEngine, ask: Ask, options: dict[str, float]
) -> None:
    """Would catch candidates of a neighbor, of another temperature, or of what top-k and top-p left."""
    others = [ask("a", seed=4, num_samples=2), ask("b", seed=5, topk_sample_logprobs=3)]
    asked = ask(seed=3, num_samples=2, topk_sample_logprobs=VOCAB_SIZE, **options)
    outputs = _sample(engine, *others, asked)
    assert outputs["a"].sequences[0].topk_tokens_TK is None
    for sequence in outputs["r"].sequences:
        assert sequence.topk_tokens_TK is not None
        assert sequence.topk_logprobs_TK is not None
        assert sequence.topk_tokens_TK.shape == sequence.topk_logprobs_TK.shape == (12, VOCAB_SIZE)
        np.testing.assert_allclose(np.exp(sequence.topk_logprobs_TK).sum(1), 1.0, atol=1e-5)
        assert (np.diff(sequence.topk_logprobs_TK, axis=1) <= 0).all()
        for t, token in enumerate(sequence.tokens_T):
            place = sequence.topk_tokens_TK[t].tolist().index(token)
            assert sequence.topk_logprobs_TK[t, place] == pytest.approx(float(sequence.logprobs_T[t]), abs=1e-6)
    (few,) = outputs["b"].sequences
    assert few.topk_tokens_TK is not None
    assert few.topk_tokens_TK.shape == (12, 3)


def test_more_candidates_than_memory_should_hold_are_refused(engine: TorchEngine, ask: Ask) -> None:
    with pytest.raises(InputError, match="candidates; at most 16777216 are kept"):
        engine.submit_sample(ask(topk_sample_logprobs=VOCAB_SIZE, num_samples=1024, max_tokens=200))
