"""Catches memory that runs leave behind: tensors, modules, tables of pointers, or the heap of the process."""

import gc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec, SampleRequest
from tests.engine.conftest import random_datums


def _live_and_die(engine: TorchEngine, base_model: str, number: int, rank: int) -> None:
    """A run from its making to its end: trained, published, now and then sampled from, dropped."""
    model_id, snapshot_id = f"m{number}", f"s{number}"
    engine.create_model(model_id, base_model, LoraSpec(rank=rank, seed=number))
    (output,) = engine.forward_backward(
        [ForwardBackward(model_id=model_id, data_D=random_datums([5]), loss_fn="cross_entropy")]
    )
    assert isinstance(output, ForwardBackwardOutput)
    engine.optim_step(model_id, AdamStep(learning_rate=0.01))
    engine.snapshot(model_id, snapshot_id)
    if number % 4 == 0 or rank == 0:
        _sample(engine, base_model, snapshot_id)
    engine.delete_snapshot(snapshot_id)
    engine.delete_model(model_id)


def _sample(engine: TorchEngine, base_model: str, snapshot_id: str) -> None:
    engine.submit_sample(
        SampleRequest(
            request_id=snapshot_id,
            base_model=base_model,
            snapshot_id=snapshot_id,
            prompt_T=np.array([3, 1, 2]),
            max_tokens=2,
            seed=0,
            stop=[],
        )
    )
    while engine.has_samples():
        engine.step_samples()


def _tensors() -> tuple[int, int]:
    """Number of tensors that are alive, and bytes of the memory they lie in."""
    gc.collect()
    tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
    return len(tensors), sum(storages.values())


def _num_objects() -> Counter[str]:
    kinds = (type(one) for one in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("cookhouse."))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "num_runs"), [(4, 300), (0, 6)], ids=["adapters", "all weights"])
def test_runs_made_and_dropped_leave_no_growth(qwen3_folder: str, rank: int, num_runs: int) -> None:
    """An adapter with its optimizer takes 0.2 MB here, a run of all weights 2 MB: a thousandth of either would show."""
    engine = TorchEngine(base_models=[qwen3_folder], precision="float32")
    for number in range(num_runs // 3):
        _live_and_die(engine, qwen3_folder, number, rank)
    tensors, objects, resident = _tensors(), _num_objects(), _resident_bytes()
    for number in range(num_runs // 3, num_runs):
        _live_and_die(engine, qwen3_folder, number, rank)
    assert _tensors() <= tensors
    assert _num_objects() <= objects
    assert _resident_bytes() - resident < 20 * 2**20
