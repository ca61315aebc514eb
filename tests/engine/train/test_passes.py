"""Catches a failure that takes neighbors with it, keeps what it held, or leaves half a gradient."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.model.activations import Activations
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.shortage import ShortageError
from cookhouse.errors import InputError
from tests.engine.conftest import random_datums
from tests.engine.numerics import assert_gradients_near, near_sum

AddModel = Callable[..., str]
_POISON = 263
"""A token that no random datum of these seeds holds."""


def _request(model_id: str, *, poisoned: bool = False) -> ForwardBackward:
    data_D = random_datums([30, 20, 10], seed=sum(map(ord, model_id)))
    for datum in data_D:
        datum.tokens_T[datum.tokens_T == _POISON] = 0
    if poisoned:
        data_D[1].tokens_T[4] = _POISON
    return ForwardBackward(model_id=model_id, data_D=data_D, loss_fn="cross_entropy")


@pytest.fixture
def exhausted(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Tensor]]:
    """A device that runs out of memory in any pass with the poisoned token; the hidden states of those passes."""
    compute = BaseModel.hidden
    held: list[weakref.ref[Tensor]] = []

    def hidden(self: BaseModel, tokens_N: Tensor, *more: Any, **options: Any) -> Tensor:
        hidden_NH = compute(self, tokens_N, *more, **options)
        if tokens_N.eq(_POISON).any():
            held.append(weakref.ref(hidden_NH))
            raise torch.OutOfMemoryError("tried to allocate 20 GiB")
        return hidden_NH

    monkeypatch.setattr(BaseModel, "hidden", hidden)
    return held


@pytest.mark.slow
def test_only_the_request_to_blame_fails(
    engine: TorchEngine, add_model: AddModel, exhausted: list[weakref.ref[Tensor]]
) -> None:
    """Would catch riders of a shared pass failing with the one that broke it, or counted twice by the second try."""
    for seed, model_id in enumerate("abc"):
        add_model(model_id, seed=seed)
    alone = {}
    for model_id in "ac":
        (alone[model_id],) = engine.forward_backward([_request(model_id)])
    gradients = {model_id: engine._model(model_id).gradient.clone() for model_id in "ac"}
    for model_id in "ac":
        engine._model(model_id).gradient.zero_()
    outputs = engine.forward_backward([_request("a"), _request("b", poisoned=True), _request("c")])
    assert isinstance(outputs[1], ShortageError)
    for model_id, output in zip("ac", outputs[::2], strict=True):
        expected = alone[model_id]
        assert isinstance(output, ForwardBackwardOutput)
        assert isinstance(expected, ForwardBackwardOutput)
        assert output.metrics == expected.metrics
        assert torch.equal(engine._model(model_id).gradient, gradients[model_id])
    assert engine._model("b").gradient.eq(0).all()
    gc.collect()
    assert len(exhausted) == 3, "together, alone, and in shorter passes"
    assert all(one() is None for one in exhausted)


@pytest.mark.slow
def test_a_failure_alone_leaves_no_gradient_and_the_next_request_works(
    qwen3_folder: str, exhausted: list[weakref.ref[Tensor]]
) -> None:
    """Would catch gradients of the passes before the one that failed, for adapters and for all weights."""
    engine = TorchEngine(precision="float32", budget_tokens=30)
    engine.create_model("adapter", qwen3_folder, LoraSpec(rank=2))
    engine.create_model("full", qwen3_folder, LoraSpec(rank=0))
    for model_id in ("adapter", "full"):
        (failed,) = engine.forward_backward([_request(model_id, poisoned=True)])
        assert isinstance(failed, ShortageError)
        assert engine._model(model_id).gradient.eq(0).all()
        (worked,) = engine.forward_backward([_request(model_id)])
        assert isinstance(worked, ForwardBackwardOutput)
        assert engine._model(model_id).gradient.ne(0).any()
    assert exhausted


@pytest.mark.slow
@pytest.mark.parametrize("rank", [2, 0])
def test_a_probe_that_fails_fails_its_request_alone(
    qwen3_folder: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch the first measure of a device, which is a pass too, taking the call and all its requests down."""
    engine = TorchEngine(precision="float32")
    engine.create_model("run", qwen3_folder, LoraSpec(rank=rank))
    shortages = iter([torch.OutOfMemoryError("tried to allocate 20 GiB"), RuntimeError("a launch failed")])
    measure = Activations.pass_tokens

    def pass_tokens(self: Activations, *arguments: Any) -> int:
        error = next(shortages, None)
        if error is not None:
            raise error
        return measure(self, *arguments)

    monkeypatch.setattr(Activations, "pass_tokens", pass_tokens)
    (failed,) = engine.forward_backward([_request("run")])
    assert str(failed) == "a launch failed"  # in the second attempt
    (worked,) = engine.forward_backward([_request("run")])
    assert isinstance(worked, ForwardBackwardOutput)


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        (2, "DefaultCPUAllocator: can't allocate memory: you tried to allocate 20 GiB"),
        (2, "could not create a primitive"),
        (0, "could not create a primitive"),
    ],
)
def test_a_request_that_runs_out_of_memory_is_computed_in_shorter_passes(
    qwen3_folder: str, rank: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a request refused for memory that shorter passes, with activations computed again, do not need; also
    where oneDNN, which allocates outside of torch, is short of it.
    """
    engine = TorchEngine(precision="float32", budget_tokens=240)
    engine.create_model("run", qwen3_folder, LoraSpec(rank=rank))
    (expected,) = engine.forward_backward([_request("run")])
    gradient = engine._model("run").gradient.clone()
    engine._model("run").gradient.zero_()
    compute = BaseModel.hidden

    def hidden(self: BaseModel, tokens_N: Tensor, *more: Any, **options: Any) -> Tensor:
        if len(tokens_N) > 30 and self.activations.max_bytes != 0:
            raise RuntimeError(said)
        return compute(self, tokens_N, *more, **options)

    monkeypatch.setattr(BaseModel, "hidden", hidden)
    (output,) = engine.forward_backward([_request("run")])
    assert isinstance(output, ForwardBackwardOutput)
    assert isinstance(expected, ForwardBackwardOutput)
    assert output.metrics["loss:sum"] == near_sum(expected.metrics["loss:sum"])
    assert_gradients_near(engine._model("run").gradient, gradient)


@pytest.mark.parametrize("rank", [2, 0])
def test_a_step_behind_failed_passes_alone_is_refused(
    qwen3_folder: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch weights that momentum alone moves where no pass left a gradient; and a step that is refused where
    another pass left one.
    """
    engine = TorchEngine(precision="float32")
    engine.create_model("run", qwen3_folder, LoraSpec(rank=rank))
    step = AdamStep(learning_rate=1e-3)

    def run(*, fails: bool) -> object:
        with monkeypatch.context() as patch:
            if fails:
                patch.setattr(BaseModel, "hidden", _without_memory)
            (output,) = engine.forward_backward([_request("run")])
        return output

    run(fails=False)
    engine.optim_step("run", step)
    before = engine._model("run").params.clone()
    failed = run(fails=True)
    assert isinstance(failed, ShortageError)
    assert "memory ran out in a pass, in shorter ones as well, and " in str(failed)
    for _ in range(2):
        with pytest.raises(InputError, match=r"every pass .* 3 datums with cross_entropy: memory ran out in a pass"):
            engine.optim_step("run", step)
    assert torch.equal(engine._model("run").params, before)
    run(fails=False)
    run(fails=True)
    engine.optim_step("run", step)
    engine.optim_step("run", step)  # without any pass since, momentum goes on
    assert not torch.equal(engine._model("run").params, before)


def _without_memory(*_: object, **__: object) -> Tensor:
    raise RuntimeError("could not create a primitive")
