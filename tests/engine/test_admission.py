"""Catches runs and snapshots that are begun although memory does not suffice: the kernel would then kill the engine."""

from pathlib import Path

import pytest

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError

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
    sampler = engine._sampler(engine._samplers, qwen3_folder, engine._bases[qwen3_folder])
    unused = sampler.unused_bytes if engine._device.type == "cpu" else 0
    free = engine._budget.promised_bytes(but_for={"cache"}) + num_parameters * 28
    monkeypatch.setattr(engine._budget, "free", lambda: free + (0 if engine._samplers else unused))
    engine.create_model("a", qwen3_folder, SPEC)
    assert not engine._samplers or not unused
