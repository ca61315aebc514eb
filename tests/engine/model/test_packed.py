"""Catches weights that change when they are packed, or that are read after they have been dropped."""

from pathlib import Path

import numpy as np
import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import LoraSpec, SampleOutput, SampleRequest
from cookhouse.engine.lora.lora import LoraLinear
from cookhouse.engine.model.packed import PackedWeights, pack, unpack
from cookhouse.engine.model.pretrained import num_weight_bytes
from cookhouse.engine.sampler.native import DecodeKernel
from cookhouse.errors import InputError
from tests.engine.families import save_family
from tests.engine.stepping import advance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_weight_is_unpacked_to_the_bit(dtype: torch.dtype) -> None:
    weight = torch.randn(48, 10).to(dtype)
    packed = pack(weight)
    assert torch.equal(unpack(packed), weight)
    assert packed[2, 3].reshape(-1)[0] == weight[32, 3 * packed.shape[3]]  # panel, features, row
    weights = PackedWeights([weight, weight, torch.randn(24, 10).to(dtype)])
    assert weights.num_bytes == weight.nbytes  # once; rows that fill no panel stay as they are
    assert weights.rows(weight, torch.tensor([1, 47])) is None
    before = weight.clone()
    weights.make(drops_originals=True)
    assert weight.shape == (48, 10)
    assert weight.isnan().all()
    assert weight.untyped_storage().nbytes() == dtype.itemsize
    rows = weights.rows(weight, torch.tensor([1, 47, 1]))
    assert rows is not None
    assert torch.equal(rows, before[[1, 47, 1]])
    with weights.unpacked(weight):
        assert torch.equal(weight, before)
    weights.drop()
    assert weights.of(weight) is not None  # it is all there is


@pytest.mark.parametrize("family", ["qwen2", "llama"])  # tied embeddings, and untied ones
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_engine_that_only_samples_holds_its_weights_once_and_samples_the_same(
    family: str, precision: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = save_family(tmp_path_factory.mktemp(family), family, vocab_size=272, num_key_value_heads=2)
    trains = TorchEngine(base_models=[folder], device="cpu", precision=precision)
    trains.create_model("m", folder, LoraSpec(rank=3))
    trains._models["m"].params.add_(torch.randn_like(trains._models["m"].params), alpha=0.05)
    state = tmp_path_factory.mktemp("state") / "s"
    trains.save_state("m", state, with_optimizer=False)
    samples = TorchEngine(base_models=[folder], device="cpu", precision=precision, samplers_only=True)
    base = samples._bases[folder]
    if DecodeKernel.gains_from_packing(base):
        weights = [module.weight for module in base.decoder.modules() if isinstance(module, LoraLinear)]
        assert len(weights) == 14
        assert all(weight.untyped_storage().nbytes() <= 4 for weight in [*weights, base.head.projection.weight])
    found = []
    for engine in (trains, samples):
        engine.load_snapshot("s", folder, LoraSpec(rank=3), state)
        found.append([_sample(engine, folder, snapshot) for snapshot in (None, "s")])
    for one, other in zip(*found, strict=True):
        assert one.sequences[0].tokens_T.tolist() == other.sequences[0].tokens_T.tolist()
        assert one.sequences[0].logprobs_T.tolist() == other.sequences[0].logprobs_T.tolist()
        assert one.prompt_logprobs_T is not None
        assert other.prompt_logprobs_T is not None
        np.testing.assert_array_equal(one.prompt_logprobs_T, other.prompt_logprobs_T)


def _sample(engine: TorchEngine, folder: str, snapshot_id: str | None) -> SampleOutput:
    engine.submit_sample(
        SampleRequest(
            request_id="r",
            base_model=folder,
            snapshot_id=snapshot_id,
            prompt_T=np.arange(20),
            max_tokens=6,
            stop=[],
            seed=3,
            prompt_logprobs=True,
        )
    )
    outputs = []
    while engine.has_samples():
        outputs += advance(engine)
    (output,) = outputs
    return output


def test_memory_to_score_prompts_is_kept_where_there_is_no_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a server that is killed by the first client who asks for log-probabilities of a prompt."""
    folder = save_family(tmp_path, "qwen2", vocab_size=272, num_key_value_heads=2)
    engine = TorchEngine(device="cpu", precision="float32", samplers_only=True)
    before = engine._budget.promised_bytes()
    engine.load_base_model(folder)
    base = engine._bases[folder]
    if not DecodeKernel.gains_from_packing(base):
        pytest.skip("no C++ compiler")
    unpacked = base.head.projection.weight.numel() * 4
    assert engine._budget.promised_bytes() == before + unpacked
    engine.load_base_model(folder)
    engine._admission.drop([folder])
    assert engine._budget.promised_bytes() == before
    size = num_weight_bytes(folder, torch.float32)
    free = before + size + unpacked - 1
    monkeypatch.setattr(engine._budget, "free", lambda: free - size * len(engine._bases))
    with pytest.raises(InputError, match=r"the output projection of .*, unpacked to score prompts, takes"):
        engine.load_base_model(folder)
    assert not engine._bases
    assert engine._budget.promised_bytes() == before


def test_an_engine_that_only_samples_refuses_to_train(qwen3_folder: str) -> None:
    """Would catch a run over weights that are not there any more."""
    samples = TorchEngine(base_models=[qwen3_folder], precision="float32", samplers_only=True)
    for rank in (0, 4):
        with pytest.raises(InputError, match=r"only samples .* without --samplers-only$"):
            samples.create_model("m", qwen3_folder, LoraSpec(rank=rank))
    assert not samples._models


def test_weights_are_packed_where_there_is_memory_for_it(
    qwen3_folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch a bound on the size of a model, and packed weights that leave nothing for the cache."""
    tokens = []
    for missing in (0, 1):
        engine = TorchEngine(base_models=[qwen3_folder], device="cpu", precision="float32")
        base, promised = engine._bases[qwen3_folder], engine._budget.promised_bytes()
        if not DecodeKernel.gains_from_packing(base):
            pytest.skip("no C++ compiler")
        free = promised + 2 * base.packed.num_bytes - missing
        monkeypatch.setattr(engine._budget, "free", lambda free=free: free)
        tokens.append(_sample(engine, qwen3_folder, None).sequences[0].tokens_T.tolist())
        assert base.packed.are_made == (not missing)
        assert ("that are spare" in caplog.text) == bool(missing)
    assert tokens[0] == tokens[1]


def test_packed_weights_of_an_idle_sampler_make_way(qwen3_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch copies that keep a run out for the sake of samples that nobody asks for."""
    engine = TorchEngine(base_models=[qwen3_folder], device="cpu", precision="float32")
    base = engine._bases[qwen3_folder]
    if not DecodeKernel.gains_from_packing(base):
        pytest.skip("no C++ compiler")
    first = _sample(engine, qwen3_folder, None)
    num_bytes = 28 * base.adapter_layout(LoraSpec(rank=4)).num_parameters
    reserve = engine._budget.promised_bytes(but_for={"cache"})
    monkeypatch.setattr(engine._budget, "free", lambda: reserve + num_bytes * (not base.packed.are_made))
    engine.create_model("m", qwen3_folder, LoraSpec(rank=4))
    assert not base.packed.are_made
    monkeypatch.undo()
    again = _sample(engine, qwen3_folder, None)
    assert again.sequences[0].tokens_T.tolist() == first.sequences[0].tokens_T.tolist()
