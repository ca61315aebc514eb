"""Parity of packed, shared and split training with the plainest possible computation of the same thing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec, TrainingDatum
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import ALPHA
from cookhouse.engine.model import base_model, head
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.train.losses import LOSSES
from cookhouse.errors import InputError
from tests.engine.conftest import VOCAB_SIZE, random_datums
from tests.engine.numerics import assert_gradients_near, assert_logprobs_near, near_sum

AddModel = Callable[..., str]


def _run(engine: TorchEngine, *requests: ForwardBackward) -> list[ForwardBackwardOutput]:
    outputs = engine.forward_backward(requests)
    assert not any(isinstance(output, InputError) for output in outputs)
    return [output for output in outputs if isinstance(output, ForwardBackwardOutput)]


def _request(model_id: str, data_D: list[TrainingDatum], *, forward_only: bool = False) -> ForwardBackward:
    return ForwardBackward(model_id=model_id, data_D=data_D, loss_fn="cross_entropy", forward_only=forward_only)


def _reference(
    folder: str, engine: TorchEngine, model_id: str, data_D: list[TrainingDatum]
) -> tuple[float, torch.Tensor]:
    """Loss and flat gradient by adding B A to each weight of the original model, one unpadded datum at a time."""
    model = AutoModelForCausalLM.from_pretrained(folder).double()
    adapter = engine._model(model_id)
    assert isinstance(adapter, Adapter)
    flat = adapter.params.cpu().double().requires_grad_()
    scaling = ALPHA / adapter.layout.spec.rank
    weights = {}
    for name, (a_RI, b_OR) in adapter.layout.views(flat).items():
        weights[f"{name}.weight"] = model.get_parameter(f"{name}.weight").detach() + scaling * b_OR @ a_RI
    loss = torch.zeros((), dtype=torch.float64)
    for datum in data_D:
        logits = torch.func.functional_call(
            model, weights, kwargs={"input_ids": torch.from_numpy(datum.tokens_T)[None]}, tie_weights=False
        ).logits[0]
        targets = torch.from_numpy(datum.loss_fn_inputs["target_tokens"])[:, None]
        logprobs = torch.log_softmax(logits, -1).gather(1, targets)[:, 0]
        loss = loss - (logprobs * torch.from_numpy(datum.loss_fn_inputs["weights"])).sum()
    (gradient,) = torch.autograd.grad(loss, flat)
    return float(loss.detach()), gradient.float()


@pytest.mark.parametrize("lengths", [[1], [7, 7, 7], [5, 300, 17, 64, 33, 1], [200, 129, 128, 127]])
def test_packed_loss_and_gradient_equal_one_datum_at_a_time(
    engine: TorchEngine, add_model: AddModel, qwen3_folder: str, lengths: list[int]
) -> None:
    data_D = random_datums(lengths)
    add_model("m")
    (output,) = _run(engine, _request("m", data_D))
    loss, gradient = _reference(qwen3_folder, engine, "m", data_D)
    assert output.metrics["loss:sum"] == near_sum(loss)
    assert_gradients_near(engine._model("m").gradient, gradient)


@pytest.mark.parametrize("rank", [4, 0])
def test_answers_to_one_prompt_compute_it_once(qwen3_folder: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the losses and the gradient that each has alone: also of the prompt's own tokens, which all weigh."""
    prompts = [random_datums([length], seed=length)[0].tokens_T for length in (40, 25)]
    data_D = random_datums([60, 45, 44, 52, 30, 26])
    for datum, prompt in zip(data_D, [prompts[0]] * 4 + [prompts[1]] * 2, strict=True):
        datum.tokens_T[: len(prompt)] = prompt
    passes: list[int] = []
    compute = BaseModel.hidden

    def hidden(self: BaseModel, tokens_N: Tensor, *more: Any, **options: Any) -> Tensor:
        passes.append(len(tokens_N))
        return compute(self, tokens_N, *more, **options)

    monkeypatch.setattr(BaseModel, "hidden", hidden)
    found = []
    for requests in ([data_D], [[datum] for datum in data_D]):
        engine = TorchEngine(precision="float32")
        engine.create_model("m", qwen3_folder, LoraSpec(rank=rank, seed=1))
        passes.clear()
        outputs = [_run(engine, _request("m", request))[0] for request in requests]
        found.append((sum(passes), [lp for output in outputs for lp in output.logprobs_D], engine._model("m").gradient))
    (together, logprobs, gradient), (apart, logprobs_apart, gradient_apart) = found
    assert apart - together == 3 * 40 + 25
    for one, other in zip(logprobs, logprobs_apart, strict=True):
        assert_logprobs_near(one, other)
    assert_gradients_near(gradient, gradient_apart)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_logits_that_are_kept_give_the_same_gradients(
    qwen3_folder: str, monkeypatch: pytest.MonkeyPatch, is_grouped: bool
) -> None:
    """Would catch what a chunk keeps for another adapter, and targets of weight zero that get a gradient."""
    monkeypatch.setattr(base_model, "can_group", lambda *_: is_grouped)
    monkeypatch.setattr(head, "_CPU_BYTES", 4 * VOCAB_SIZE * 30)
    gradients = []
    for is_kept in (False, True):
        monkeypatch.setattr(head.Head, "can_keep", lambda *_, value=is_kept: value)
        engine = TorchEngine(base_models=[qwen3_folder], precision="float32")
        for seed, model_id in enumerate("ab"):
            engine.create_model(model_id, qwen3_folder, LoraSpec(rank=8, seed=seed))
        _run(engine, *(_request(model_id, random_datums([40, 33])) for model_id in "ab"))
        gradients.append([engine._model(model_id).gradient for model_id in "ab"])
    for got, want in zip(gradients[1], gradients[0], strict=True):
        assert_gradients_near(got, want)


def test_a_batch_split_over_passes_and_calls_equals_one_call(qwen3_folder: str) -> None:
    data_D = random_datums([40, 12, 33, 8, 21])
    gradients = []
    for budget, calls in ((4096, [data_D]), (48, [data_D]), (4096, [data_D[:2], data_D[2:]])):
        engine = TorchEngine(base_models=[qwen3_folder], precision="float32", budget_tokens=budget)
        engine.create_model("m", qwen3_folder, LoraSpec(rank=4, seed=1))
        for part_D in calls:
            _run(engine, _request("m", part_D))
        gradients.append(engine._model("m").gradient)
    assert_gradients_near(gradients[1], gradients[0])
    assert_gradients_near(gradients[2], gradients[0])


def test_a_sequence_longer_than_the_budget_still_trains(qwen3_folder: str) -> None:
    """Would catch a budget that refuses, cuts or drops what cannot be split."""
    data_D = random_datums([300, 9])
    results = []
    for budget in (4096, 32):
        engine = TorchEngine(base_models=[qwen3_folder], precision="float32", budget_tokens=budget)
        engine.create_model("m", qwen3_folder, LoraSpec(rank=4, seed=1))
        (output,) = _run(engine, _request("m", data_D))
        results.append((output, engine._model("m").gradient))
    (whole, gradient), (split, split_gradient) = results
    assert split.metrics["loss:sum"] == near_sum(whole.metrics["loss:sum"])
    assert [len(logprobs) for logprobs in split.logprobs_D] == [300, 9]
    assert_gradients_near(split_gradient, gradient)


def test_tenants_of_unequal_rank_and_parts_in_one_call_equal_one_at_a_time(
    engine: TorchEngine, add_model: AddModel
) -> None:
    specs = {"a": {"rank": 2}, "b": {"rank": 7, "seed": 1}, "c": {"rank": 3, "seed": 2, "train_mlp": False}}
    data = {"a": random_datums([9, 30], 1), "b": random_datums([14], 2), "c": random_datums([30, 3, 8], 3)}
    alone = {}
    for name, spec in specs.items():
        add_model(name, **spec)
        (output,) = _run(engine, _request(name, data[name]))
        alone[name] = (output, engine._model(name).gradient.clone())
        engine._model(name).gradient.zero_()
    outputs = _run(engine, *(_request(name, data[name]) for name in specs))
    for name, output in zip(specs, outputs, strict=True):
        expected, gradient = alone[name]
        for got, want in zip(output.logprobs_D, expected.logprobs_D, strict=True):
            assert_logprobs_near(got, want)
        assert_gradients_near(engine._model(name).gradient, gradient)


def test_requests_of_one_model_in_one_call_both_count(engine: TorchEngine, add_model: AddModel) -> None:
    data_D = random_datums([9, 30])
    add_model("m")
    _run(engine, _request("m", data_D))
    once = engine._model("m").gradient.clone()
    engine._model("m").gradient.zero_()
    _run(engine, _request("m", data_D), _request("m", data_D))
    assert torch.equal(engine._model("m").gradient, 2 * once)


def test_forward_only_leaves_no_gradient(engine: TorchEngine, add_model: AddModel) -> None:
    data_D = random_datums([9, 30])
    add_model("m")
    (forward,) = _run(engine, _request("m", data_D, forward_only=True))
    assert engine._model("m").gradient.eq(0).all()
    (both,) = _run(engine, _request("m", data_D))
    assert forward.metrics == both.metrics


def test_a_pass_that_only_looks_beside_one_that_trains(qwen3_folder: str) -> None:
    """Catches a backward through a pass whose datums all belong to a request that asked for no gradient."""
    engine = TorchEngine(base_models=[qwen3_folder], precision="float32", budget_tokens=32)
    for model_id in ("trained", "seen"):
        engine.create_model(model_id, qwen3_folder, LoraSpec(rank=4))
    _run(engine, _request("trained", random_datums([30])), _request("seen", random_datums([20]), forward_only=True))
    assert engine._model("trained").gradient.ne(0).any()
    assert engine._model("seen").gradient.eq(0).all()


def test_a_refused_request_leaves_no_gradient_and_its_neighbors_work(engine: TorchEngine, add_model: AddModel) -> None:
    add_model("good")
    add_model("bad", seed=1)
    data_D = random_datums([9, 30])
    broken = TrainingDatum(tokens_T=data_D[0].tokens_T, loss_fn_inputs={"target_tokens": np.full(9, VOCAB_SIZE)})
    good, bad, unknown = engine.forward_backward(
        [_request("good", data_D), _request("bad", [*data_D, broken]), _request("none", data_D)]
    )
    assert isinstance(good, ForwardBackwardOutput)
    assert isinstance(bad, InputError)
    assert isinstance(unknown, InputError)
    assert engine._model("bad").gradient.eq(0).all()
    assert engine._model("good").gradient.ne(0).any()


def test_a_loss_that_is_not_finite_fails_alone(engine: TorchEngine, add_model: AddModel) -> None:
    add_model("good")
    add_model("bad", seed=1)
    data_D = random_datums([9, 30])
    huge = TrainingDatum(
        tokens_T=data_D[0].tokens_T,
        loss_fn_inputs={"target_tokens": data_D[0].tokens_T, "weights": np.full(9, 3e38, np.float32)},
    )
    good, bad = engine.forward_backward([_request("good", data_D), _request("bad", [huge])])
    assert isinstance(good, ForwardBackwardOutput)
    assert isinstance(bad, InputError)
    assert engine._model("bad").gradient.eq(0).all()
    assert torch.isfinite(engine._model("good").gradient).all()


@pytest.mark.parametrize("rank", [4, 0])
def test_a_gradient_that_is_not_finite_is_not_added_to_those_before(qwen3_folder: str, rank: int) -> None:
    """Would catch one request that spoils the step of all: a clipped ratio is finite, its derivative may not be."""
    engine = TorchEngine(base_models=[qwen3_folder], precision="float32")
    engine.create_model("m", qwen3_folder, LoraSpec(rank=rank))
    _run(engine, _request("m", random_datums([12])))
    before = engine._model("m").gradient.clone()
    tokens_T = np.arange(5)
    datum = TrainingDatum(
        tokens_T=tokens_T,
        loss_fn_inputs={
            "target_tokens": tokens_T,
            "logprobs": np.full(5, -1e30, np.float32),
            "advantages": np.ones(5, np.float32),
        },
    )
    (output,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=[datum], loss_fn="ppo")])
    assert isinstance(output, InputError)
    assert "gradient is not finite" in str(output)
    assert torch.equal(engine._model("m").gradient, before)


@pytest.mark.parametrize("loss_fn", ["importance_sampling", "ppo", "gspo", "cispo"])
@pytest.mark.parametrize("rank", [4, 0])
def test_one_bad_logprob_is_named(qwen3_folder: str, loss_fn: str, rank: int) -> None:
    """Would catch a request of hundreds of datums that is refused without a word on which of them it is."""
    engine = TorchEngine(base_models=[qwen3_folder], precision="float32", budget_tokens=40)
    engine.create_model("m", qwen3_folder, LoraSpec(rank=rank))
    data_D = []
    for number in range(12):
        values = {name: np.full(5, -1.0, np.float32) for name in LOSSES[loss_fn].inputs}
        if number == 7:
            values["logprobs"][3] = -1e30
        data_D.append(TrainingDatum(tokens_T=np.arange(5), loss_fn_inputs={"target_tokens": np.arange(1, 6), **values}))
    (output,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=data_D, loss_fn=loss_fn)])
    if loss_fn == "cispo":  # which truncates the ratio, and takes no derivative of it
        assert isinstance(output, ForwardBackwardOutput)
        return
    assert "at datum 7, position 3, with" in str(output)
    assert "logprobs -1e+30" in str(output)
    assert engine._model("m").gradient.eq(0).all()


def test_what_the_weights_spoil_is_told_from_a_bad_input(qwen3_folder: str) -> None:
    """Would catch a message that blames the data for weights that are none."""
    engine = TorchEngine(base_models=[qwen3_folder], precision="float32")
    engine.create_model("m", qwen3_folder, LoraSpec(rank=4))
    engine._model("m").params.fill_(1e30)
    (output,) = engine.forward_backward([_request("m", random_datums([5]))])
    assert "where the weights give a log-probability of nan" in str(output)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gradient_scales_with_the_weights_to_the_bit(qwen3_folder: str, precision: str) -> None:
    """Would catch a gradient that loses small parts for their size: what is left of a factor is then not rounding.

    A power of two changes no digit, in any precision.
    """
    engine = TorchEngine(base_models=[qwen3_folder], precision=precision)
    found = []
    for scale in (1.0, 2.0**-12, 2.0**12):
        engine.create_model("m", qwen3_folder, LoraSpec(rank=4, seed=1))
        data_D = random_datums([30, 7, 21])
        for datum in data_D:
            datum.loss_fn_inputs["weights"][:] *= scale
        _run(engine, _request("m", data_D))
        found.append(engine._model("m").gradient / scale)
        engine.delete_model("m")
    assert found[0].count_nonzero() > 100
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_one_tenants_step_leaves_the_others_bit_equal(engine: TorchEngine, add_model: AddModel) -> None:
    add_model("stepping")
    add_model("resting", seed=1)
    before = engine._model("resting").params.clone()
    _run(engine, _request("stepping", random_datums([9])))
    engine.optim_step("stepping", AdamStep(learning_rate=0.1, weight_decay=0.5))
    assert torch.equal(engine._model("resting").params, before)


def test_several_targets_per_position_sum(engine: TorchEngine, add_model: AddModel) -> None:
    rng = np.random.default_rng(0)
    tokens, targets_TK = rng.integers(0, VOCAB_SIZE, 12), rng.integers(0, VOCAB_SIZE, (12, 3))
    weights_TK = rng.random((12, 3)).astype(np.float32)
    add_model("m")
    wide = TrainingDatum(tokens_T=tokens, loss_fn_inputs={"target_tokens": targets_TK, "weights": weights_TK})
    (output,) = _run(engine, _request("m", [wide]))
    gradient = engine._model("m").gradient.clone()
    engine._model("m").gradient.zero_()
    columns = [
        TrainingDatum(tokens_T=tokens, loss_fn_inputs={"target_tokens": targets_TK[:, k], "weights": weights_TK[:, k]})
        for k in range(3)
    ]
    (separate,) = _run(engine, _request("m", columns))
    assert output.logprobs_D[0].shape == (12, 3)
    assert_logprobs_near(output.logprobs_D[0], np.stack(separate.logprobs_D, 1))
    assert_gradients_near(engine._model("m").gradient, gradient)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_same_seed_gives_the_same_losses_to_the_bit(qwen3_folder: str, precision: str) -> None:
    """Would catch sums by atomics on a GPU, where each precision has an attention of its own."""

    def losses() -> list[float]:
        engine = TorchEngine(base_models=[qwen3_folder], precision=precision)
        engine.create_model("m", qwen3_folder, LoraSpec(rank=4, seed=1))
        values = []
        for step in range(4):
            (output,) = _run(engine, _request("m", random_datums([30, 7, 21], step)))
            values.append(output.metrics["loss:sum"])
            engine.optim_step("m", AdamStep(learning_rate=0.01))
        return values

    assert losses() == losses()
