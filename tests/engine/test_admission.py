"""Catches runs and snapshots that are begun although memory does not suffice: the kernel would then kill the engine."""

import re
from pathlib import Path

import pytest

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.host_memory import show_bytes
from cookhouse.engine.model.base_models import BaseModels
from cookhouse.errors import InputError
from tests.engine.conftest import random_datums

SPEC = LoraSpec(rank=4)


@pytest.fixture
def num_parameters(engine: TorchEngine, qwen3_folder: str) -> int:
    """Of an adapter of the spec."""
    return engine._bases[qwen3_folder].adapter_layout(SPEC).num_parameters


@pytest.fixture
def machine(engine: TorchEngine, num_parameters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for ten adapters: state, the gradient of a request to each, two snapshots of each, and a byte too little
    for one more.
    """
    reserve = engine._budget.promised_bytes()

    def free() -> int:
        taken = sum(16 * model.params.numel() for model in engine._models.values())
        taken += sum(weights.flat.nbytes for _, weights in engine._snapshots.values())
        return reserve + num_parameters * (10 * 28 + 28) - 1 - taken

    monkeypatch.setattr(engine._budget, "free", free)


@pytest.mark.usefixtures("machine")
def test_adapters_are_admitted_as_long_as_all_of_them_can_be_trained(
    engine: TorchEngine, qwen3_folder: str, tmp_path: Path
) -> None:
    for index in range(10):
        engine.create_model(str(index), qwen3_folder, SPEC)
    engine.save_state("0", tmp_path / "s", with_optimizer=True)
    message = (
        r"^an adapter of rank 4 over '.*' takes [\d.]+ MiB and [\d.]+ MiB of memory are free beside what is promised "
        r"\(gradients of requests [\d.]+ MiB, snapshots [\d.]+ MiB, passes [\d.]+ [GM]iB\); use a lower rank or a "
    )
    with pytest.raises(InputError, match=message):
        engine.create_model("10", qwen3_folder, SPEC)
    with pytest.raises(InputError, match=message):
        engine.load_state("10", qwen3_folder, SPEC, tmp_path / "s", with_optimizer=True)
    assert "10" not in engine._models
    engine.delete_model("3")
    engine.load_state("10", qwen3_folder, SPEC, tmp_path / "s", with_optimizer=True)


@pytest.mark.usefixtures("machine")
def test_snapshots_are_admitted_by_what_they_take(engine: TorchEngine, qwen3_folder: str, tmp_path: Path) -> None:
    for index in range(10):
        engine.create_model(str(index), qwen3_folder, SPEC)
    for number in range(26):  # two of each, and in what is left over six more
        engine.snapshot(str(number % 10), str(number))
    engine.save_state("0", tmp_path / "s", with_optimizer=False)
    message = (
        r"^a snapshot of an adapter of rank 4 over '.*' takes [\d.]+ MiB and [\d.]+ MiB of memory are free be.*; end "
    )
    with pytest.raises(InputError, match=message):
        engine.snapshot("0", "a")
    assert "a" not in engine._snapshots
    with pytest.raises(InputError, match=message):
        engine.load_snapshot("a", qwen3_folder, SPEC, tmp_path / "s")
    engine.delete_snapshot("9")
    engine.snapshot("0", "a")


def test_an_idle_cache_makes_way_for_an_adapter(
    engine: TorchEngine, qwen3_folder: str, num_parameters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a run that is refused for the sake of prefixes that nobody may ask for again."""
    engine.load_base_model(qwen3_folder)
    sampler = engine._samplers.of(qwen3_folder, engine._bases[qwen3_folder])
    unused = sampler.unused_bytes if engine._device.type == "cpu" else 0
    free = engine._budget.promised_bytes(but_for={"cache"}) + num_parameters * 28
    monkeypatch.setattr(engine._budget, "free", lambda: free + (0 if engine._samplers else unused))
    engine.create_model("a", qwen3_folder, SPEC)
    assert not engine._samplers or not unused


def test_a_base_model_that_does_not_fit_is_refused_before_it_is_read(
    engine: TorchEngine, qwen3_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a server that is killed by what a client names."""
    engine._admission.drop([qwen3_folder])
    monkeypatch.setattr(BaseModels, "load", lambda *_: pytest.fail("it was read"))
    promised = engine._budget.promised_bytes()
    monkeypatch.setattr(engine._budget, "free", lambda: promised + engine._bases.num_bytes(qwen3_folder) - 1)
    with pytest.raises(
        InputError, match=r"^base model '.*' takes [\d.]+ MiB and [\d.]+ MiB of memory are free.*; use a"
    ):
        engine.create_model("a", qwen3_folder, SPEC)
    assert not engine._models


def test_a_hundred_adapters_are_admitted_or_refused_and_those_that_are_can_all_train(
    engine: TorchEngine, qwen3_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch promises that are made twice over: each adapter finds the memory free that others will take; and one
    that is refused without saying how much it takes and how much there is.
    """
    spec = LoraSpec(rank=32)
    num_parameters = engine._bases[qwen3_folder].adapter_layout(spec).num_parameters
    total = engine._budget.promised_bytes() + num_parameters * 28 * 40
    taken = 0

    def free() -> int:
        return total - taken - sum(16 * model.params.numel() for model in engine._models.values())

    monkeypatch.setattr(engine._budget, "free", free)
    refusals = []
    for index in range(100):
        try:
            engine.create_model(str(index), qwen3_folder, spec)
        except InputError as error:
            refusals.append(str(error))
        assert engine._budget.promised_bytes() <= free()
    assert len(refusals) == 60
    figures = (
        rf"an adapter of rank 32 over '.*' takes {show_bytes(28 * num_parameters)} and 0\.00 MiB of memory are free "
        r"beside what is promised \(gradients of requests .*, snapshots .*, passes .*\); use a lower rank or .*"
    )
    assert all(re.fullmatch(figures, refusal) for refusal in refusals)
    requests = [
        ForwardBackward(model_id=model_id, data_D=random_datums([5]), loss_fn="cross_entropy")
        for model_id in engine._models
    ]
    for output in engine.forward_backward(requests):
        assert isinstance(output, ForwardBackwardOutput)
        taken += 4 * num_parameters  # the gradients of one pass, which are there at once
    assert free() >= 0
    taken = 0
    for model_id in engine._models:
        for number in range(2):
            engine.snapshot(model_id, f"{model_id}-{number}")
            taken += 4 * num_parameters
    assert free() >= 0


def test_a_copy_for_a_save_takes_nothing_that_is_promised(qwen3_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a save that leaves a pass beside it without memory; it is written without a copy then."""
    engine = TorchEngine(base_models=[qwen3_folder], device="cpu", precision="float32")
    engine.create_model("a", qwen3_folder, SPEC)
    state_bytes = 12 * engine._models["a"].params.numel()
    for missing in (0, 1):
        free = engine._budget.promised_bytes() + 2 * state_bytes - missing
        monkeypatch.setattr(engine._budget, "free", lambda free=free: free)
        assert (engine.copy_state("a", with_optimizer=True) is None) == bool(missing)
