"""Parity of every architecture with the plainest possible computation of the same thing, experts included."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import (
    AdamStep,
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    SampleOutput,
    SampleRequest,
    TrainingDatum,
)
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import ALPHA
from cookhouse.errors import InputError
from tests.engine.conftest import VOCAB_SIZE, noise, random_datums
from tests.engine.families import COMPOSITES, FAMILIES, load_reference, save_family
from tests.engine.numerics import MODEL, WAYS, assert_gradients_near, assert_logprobs_near, near_sum
from tests.engine.stepping import advance

PROMPT_T = np.random.default_rng(5).integers(0, VOCAB_SIZE, 21)


@pytest.fixture(scope="module", params=[*FAMILIES, *COMPOSITES])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_family(tmp_path_factory.mktemp(family), family)


@pytest.fixture(scope="module")
def loaded(folder: str) -> TorchEngine:
    return TorchEngine(base_models=[folder], precision="float32")


@pytest.fixture
def engine(loaded: TorchEngine, folder: str) -> TorchEngine:
    """An engine with three models of unequal rank and parts whose adapters already differ from zero."""
    specs = {
        "a": LoraSpec(rank=4, seed=1),
        "b": LoraSpec(rank=7, seed=2, train_attn=False),
        "c": LoraSpec(rank=2, seed=3, train_mlp=False, train_unembed=False),
    }
    for model_id, spec in specs.items():
        loaded.create_model(model_id, folder, spec)
        params = loaded._model(model_id).params
        params.add_(noise(params, spec.seed), alpha=0.05)
    return loaded


def _run(engine: TorchEngine, data: dict[str, list[TrainingDatum]]) -> list[ForwardBackwardOutput]:
    requests = [ForwardBackward(model_id=m, data_D=data_D, loss_fn="cross_entropy") for m, data_D in data.items()]
    outputs = engine.forward_backward(requests)
    assert all(isinstance(output, ForwardBackwardOutput) for output in outputs)
    return [output for output in outputs if isinstance(output, ForwardBackwardOutput)]


def _reference(
    folder: str, engine: TorchEngine, model_id: str, data_D: list[TrainingDatum]
) -> tuple[float, torch.Tensor]:
    """Loss and flat gradient in float64, by merging every B A into the original model, one unpadded datum at a time."""
    model = load_reference(folder, attn_implementation="eager", experts_implementation="eager")
    model = model.double()
    adapter = engine._model(model_id)
    assert isinstance(adapter, Adapter)
    flat = adapter.params.cpu().double().requires_grad_()
    views = adapter.layout.views(flat)
    merged: dict[str, torch.Tensor] = {}
    for site in adapter.layout.sites:
        a, b = views[site.name]
        weight = merged.setdefault(site.parameter_name, model.get_parameter(site.parameter_name).detach().clone())
        site.select(weight).add_(b @ a, alpha=ALPHA / adapter.layout.spec.rank)
    loss = torch.zeros((), dtype=torch.float64)
    for datum in data_D:
        tokens = {"input_ids": torch.from_numpy(datum.tokens_T)[None]}
        logits = torch.func.functional_call(model, merged, kwargs=tokens, tie_weights=False).logits[0]
        targets = torch.from_numpy(datum.loss_fn_inputs["target_tokens"])[:, None]
        logprobs = torch.log_softmax(logits, -1).gather(1, targets)[:, 0]
        loss = loss - (logprobs * torch.from_numpy(datum.loss_fn_inputs["weights"])).sum()
    (gradient,) = torch.autograd.grad(loss, flat)
    return float(loss.detach()), gradient.float()


@pytest.mark.parametrize("model_id", ["a", "b", "c"])
def test_packed_loss_and_gradient_equal_the_merged_model(engine: TorchEngine, folder: str, model_id: str) -> None:
    data_D = random_datums([40, 1, 23, 38])
    (output,) = _run(engine, {model_id: data_D})
    loss, gradient = _reference(folder, engine, model_id, data_D)
    assert output.metrics["loss:sum"] == near_sum(loss)
    assert_gradients_near(engine._model(model_id).gradient, gradient)
    for name, matrices in engine._model(model_id).layout.views(gradient).items():
        assert all(matrix.ne(0).any() for matrix in matrices), f"{name} is not trained"


def test_tenants_in_one_pass_equal_one_at_a_time(engine: TorchEngine) -> None:
    data = {"a": random_datums([9, 30], 1), "b": random_datums([14], 2), "c": random_datums([30, 3, 8], 3)}
    alone = {}
    for model_id, data_D in data.items():
        (output,) = _run(engine, {model_id: data_D})
        alone[model_id] = output, engine._model(model_id).gradient.clone()
        engine._model(model_id).gradient.zero_()
    for (model_id, (expected, gradient)), output in zip(alone.items(), _run(engine, data), strict=True):
        for got, want in zip(output.logprobs_D, expected.logprobs_D, strict=True):
            assert_logprobs_near(got, want)
        assert_gradients_near(engine._model(model_id).gradient, gradient)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_cached_decoding_equals_the_trainer(engine: TorchEngine, folder: str, temperature: float) -> None:
    _check_decoding(engine, folder, ("a", "b"), temperature, MODEL)


@pytest.mark.parametrize("family", ["granite", "cohere", "cohere2", "gemma2", "gemma4_text", "phi3"])
def test_cached_decoding_in_bf16_equals_the_trainer_but_for_rounding(family: str, tmp_path: Path) -> None:
    """Catches a factor or a cap of numbers that are rounded in the one and not in the other."""
    folder = save_family(tmp_path, family)
    engine = TorchEngine(base_models=[folder], precision="bfloat16")
    engine.create_model("a", folder, LoraSpec(rank=4, seed=1))
    _check_decoding(engine, folder, ("a",), 1.0, WAYS["bfloat16"])


def _check_decoding(
    engine: TorchEngine,
    folder: str,
    model_ids: Sequence[str],
    temperature: float,
    tolerance: float,
    *,
    max_tokens: int = 20,
) -> None:
    """Sample under some models, and compare with the log-probabilities of the same tokens in training."""
    for model_id in model_ids:
        engine.snapshot(model_id, model_id)
        request = SampleRequest(
            request_id=model_id,
            base_model=folder,
            snapshot_id=model_id,
            prompt_T=PROMPT_T,
            num_samples=2,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=4,
            stop=[],
        )
        engine.submit_sample(request)
    outputs: dict[str, SampleOutput] = {}
    while engine.has_samples():
        outputs |= {output.request_id: output for output in advance(engine)}
    for model_id, output in outputs.items():
        for sequence in output.sequences:
            tokens = np.concatenate([PROMPT_T, sequence.tokens_T])
            ranks_TV = np.tile(np.arange(VOCAB_SIZE), (len(tokens) - 1, 1))
            datum = TrainingDatum(
                tokens_T=tokens[:-1],
                loss_fn_inputs={"target_tokens": ranks_TV, "weights": np.zeros(ranks_TV.shape, np.float32)},
            )
            (trained,) = _run(engine, {model_id: [datum]})
            logprobs_TV = trained.logprobs_D[0][len(PROMPT_T) - 1 :]
            expected = logprobs_TV[np.arange(len(sequence.tokens_T)), sequence.tokens_T]
            assert_logprobs_near(sequence.logprobs_T, expected, tolerance)
            if temperature == 0.0:
                assert_logprobs_near(expected, logprobs_TV.max(1), tolerance)


def test_the_bare_model_equals_transformers(loaded: TorchEngine, folder: str) -> None:
    request = SampleRequest(
        request_id="r",
        base_model=folder,
        snapshot_id=None,
        prompt_T=PROMPT_T,
        seed=0,
        max_tokens=8,
        temperature=0.0,
        stop=[],
        prompt_logprobs=True,
    )
    loaded.submit_sample(request)
    while not (outputs := advance(loaded)):
        pass
    (output,) = outputs
    assert output.prompt_logprobs_T is not None
    model = load_reference(folder, attn_implementation="eager")
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(PROMPT_T)[None]).logits[0]
    expected = torch.log_softmax(logits, -1)[:-1].gather(1, torch.from_numpy(PROMPT_T[1:, None]))[:, 0]
    assert_logprobs_near(output.prompt_logprobs_T[1:], expected.numpy())
    model.generation_config.eos_token_id = None
    prompt_1T = torch.from_numpy(PROMPT_T)[None]
    continued = model.generate(prompt_1T, attention_mask=torch.ones_like(prompt_1T), max_new_tokens=8, do_sample=False)
    assert output.sequences[0].tokens_T.tolist() == continued[0, len(PROMPT_T) :].tolist()


def test_training_lowers_the_loss_and_a_checkpoint_brings_it_back(
    engine: TorchEngine, folder: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data_D = random_datums([30, 20])
    losses = []
    for _ in range(4):
        (output,) = _run(engine, {"a": data_D})
        losses.append(output.metrics["loss:sum"])
        engine.optim_step("a", AdamStep(learning_rate=0.01))
    assert losses[-1] < losses[0]
    target = tmp_path_factory.mktemp("state") / "a"
    engine.save_state("a", target, with_optimizer=True)
    engine.load_state("restored", folder, LoraSpec(rank=4, seed=1), target, with_optimizer=True)
    assert torch.equal(engine._model("restored").params, engine._model("a").params)
    (one,), (other,) = _run(engine, {"a": data_D}), _run(engine, {"restored": data_D})
    assert one.metrics == other.metrics
    assert torch.equal(engine._model("restored").gradient, engine._model("a").gradient)


def test_bf16_stays_near_fp32(engine: TorchEngine, folder: str) -> None:
    rounded = TorchEngine(base_models=[folder], precision="bfloat16")
    rounded.create_model("a", folder, LoraSpec(rank=4, seed=1))
    rounded._model("a").params.copy_(engine._model("a").params)
    data = {"a": random_datums([60, 40])}
    (output,), (expected,) = _run(rounded, data), _run(engine, data)
    # On average, and less near with experts: close to a tie of two a router's choice, and with it a position, may turn.
    difference = np.concatenate(output.logprobs_D) - np.concatenate(expected.logprobs_D)
    assert np.abs(difference).mean() < 0.1
    got, want = rounded._model("a").gradient, engine._model("a").gradient
    assert torch.cosine_similarity(got, want, 0) > (0.9 if "moe" in folder else 0.98)


_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")
_DELTA = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
_MLA = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")


def _paths(
    layer: int, attention: tuple[str, ...], *mlps: str, decoder: str = "model", kind: str = "self_attn"
) -> set[str]:
    start = f"{decoder}.layers.{layer}"
    return {f"{start}.{kind}.{name}" for name in attention} | {f"{start}.{mlp}.{n}" for mlp in mlps for n in _MLP}


_EXPERTS = ("mlp.experts", "mlp.shared_expert")


_TEXT = "model.language_model"
"""Where a model that takes images keeps its decoder, in its checkpoints as well."""
_DENSE_TEXT = _paths(0, _ATTENTION, "mlp", decoder=_TEXT) | _paths(1, _ATTENTION, "mlp", decoder=_TEXT)


def _fused_paths(layer: int) -> set[str]:
    names = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
    return {f"model.layers.{layer}.{name}" for name in names}


SITES = {
    "llama": _paths(0, _ATTENTION, "mlp") | _paths(1, _ATTENTION, "mlp"),
    "qwen2": _paths(0, _ATTENTION, "mlp") | _paths(1, _ATTENTION, "mlp"),
    "qwen3": _paths(0, _ATTENTION, "mlp") | _paths(1, _ATTENTION, "mlp"),
    "qwen3_moe": _paths(0, _ATTENTION, "mlp") | _paths(1, _ATTENTION, "mlp.experts"),
    "deepseek_v3": _paths(0, _MLA, "mlp") | _paths(1, _MLA, "mlp.experts", "mlp.shared_experts"),
    "gpt_oss": _paths(0, _ATTENTION, "mlp.experts") | _paths(1, _ATTENTION, "mlp.experts"),
    "granite": _paths(0, _ATTENTION, "mlp") | _paths(1, _ATTENTION, "mlp"),
    "granitemoe": _paths(0, _ATTENTION, "block_sparse_moe.experts") | _paths(1, _ATTENTION, "block_sparse_moe.experts"),
    "cohere": _paths(0, _ATTENTION, "mlp") | _paths(1, _ATTENTION, "mlp"),
    "cohere2": _paths(0, _ATTENTION, "mlp") | _paths(1, _ATTENTION, "mlp"),
    "gemma2": _paths(0, _ATTENTION, "mlp") | _paths(1, _ATTENTION, "mlp"),
    "phi3": _fused_paths(0) | _fused_paths(1),
    # Keys of the layer that sees everything are its values, too.
    "gemma4_text": _paths(0, _ATTENTION, "mlp") | _paths(1, ("q_proj", "k_proj", "o_proj"), "mlp"),
    "gemma3": _DENSE_TEXT,
    "mistral3": _DENSE_TEXT,
    "qwen3_vl": _DENSE_TEXT,
    "kimi_k25": _paths(0, _MLA, "mlp", decoder=_TEXT)
    | _paths(1, _MLA, "mlp.experts", "mlp.shared_experts", decoder=_TEXT),
    "qwen3_5": _paths(0, _DELTA, "mlp", decoder=_TEXT, kind="linear_attn")
    | _paths(1, _ATTENTION, "mlp", decoder=_TEXT),
    "qwen3_5_moe_text": _paths(0, _DELTA, *_EXPERTS, kind="linear_attn") | _paths(1, _ATTENTION, *_EXPERTS),
    "qwen3_next": _paths(0, ("in_proj_qkvz", "in_proj_ba", "out_proj"), "mlp", kind="linear_attn")
    | _paths(1, _ATTENTION, *_EXPERTS),
}
_GRANITE = {
    "gate_proj": ("input_linear", slice(0, 24)),
    "up_proj": ("input_linear", slice(24, 48)),
    "down_proj": ("output_linear", slice(0, 32)),
}
"""Where Granite keeps the matrices of its experts: gates and ups one below the other."""
# Features in and out over all adapted matrices, by hand from the configs; the output projection is 32 + 264.
_DENSE, _HEAD = 3 * (32 + 48), 32 + VOCAB_SIZE
_NARROW = 2 * (32 + 32) + 2 * (32 + 16)
_QWEN3 = 2 * (32 + 48) + 2 * (32 + 24)
_GATED = (32 + 128) + 2 * (32 + 32) + (64 + 32)  # queries bring a gate along
_MIXED, _HEADS = 2 * 2 * 16 + 8 * 8, 8 * 8
_DELTA_LAYER = (32 + _MIXED) + (32 + _HEADS) + 2 * (32 + 8) + (_HEADS + 32)
# The experts of a layer share what is on the side of the hidden dimension.
_SIX_EXPERTS = 3 * (32 + 6 * 24) + 3 * (32 + 40)
NUM_FEATURES = {
    "llama": 2 * (2 * (32 + 32) + 2 * (32 + 16) + _DENSE) + _HEAD,
    "qwen2": 2 * (2 * (32 + 32) + 2 * (32 + 8) + _DENSE) + _HEAD,
    "qwen3": 2 * (_QWEN3 + _DENSE) + _HEAD,
    "qwen3_moe": 2 * _QWEN3 + _DENSE + 3 * (32 + 6 * 24) + _HEAD,
    "deepseek_v3": 2 * ((32 + 16) + (16 + 72) + (32 + 28) + (20 + 88) + (48 + 32))
    + _DENSE
    + 3 * (32 + 8 * 16)
    + 3 * (32 + 16)
    + _HEAD,
    "gpt_oss": 2 * (_QWEN3 + 3 * (32 + 4 * 24)) + _HEAD,
    "granite": 2 * (_NARROW + _DENSE) + _HEAD,
    "granitemoe": 2 * (_NARROW + 3 * (32 + 4 * 24)) + _HEAD,
    "cohere": 2 * (_NARROW + _DENSE) + _HEAD,
    "cohere2": 2 * (_NARROW + _DENSE) + _HEAD,
    "gemma2": 2 * (_QWEN3 + _DENSE) + _HEAD,
    "phi3": 2 * ((32 + 64) + (32 + 32) + (32 + 96) + (48 + 32)) + _HEAD,
    "gemma4_text": 2 * (32 + 32) + 2 * (32 + 16) + 2 * (32 + 64) + (32 + 16) + 2 * _DENSE + _HEAD,
    "gemma3": 2 * (_QWEN3 + _DENSE) + _HEAD,
    "mistral3": 2 * (2 * (32 + 32) + 2 * (32 + 16) + _DENSE) + _HEAD,
    "qwen3_vl": 2 * (_QWEN3 + _DENSE) + _HEAD,
    "qwen3_5": _DELTA_LAYER + _GATED + 2 * _DENSE + _HEAD,
    "qwen3_5_moe_text": _DELTA_LAYER + _GATED + 2 * _SIX_EXPERTS + _HEAD,
    "qwen3_next": (32 + _MIXED + _HEADS) + (32 + 16) + (_HEADS + 32) + _DENSE + _GATED + _SIX_EXPERTS + _HEAD,
}
NUM_FEATURES["kimi_k25"] = NUM_FEATURES["deepseek_v3"]


def test_every_matrix_but_the_routers_has_a_site(loaded: TorchEngine, folder: str, family: str) -> None:
    layout = loaded._bases[folder].adapter_layout(LoraSpec(rank=3))
    assert {site.name for site in layout.sites} == SITES[family] | {"lm_head"}
    assert layout.num_parameters == 3 * NUM_FEATURES[family]


def test_expert_sites_are_the_matrices_that_checkpoints_name(loaded: TorchEngine, folder: str, family: str) -> None:
    base = loaded._bases[folder]
    stored = load_file(Path(folder) / "model.safetensors")
    sites = [site for site in base.adapter_layout(LoraSpec()).sites if site.num_experts]
    with_experts = ("qwen3_moe", "deepseek_v3", "gpt_oss", "granitemoe", "kimi_k25", "qwen3_5_moe_text", "qwen3_next")
    assert bool(sites) == (family in with_experts)
    for site in sites:
        path, _, child = site.name.rpartition(".")
        if family == "granitemoe":
            matrices = stored[f"{path.removesuffix('.experts')}.{_GRANITE[child][0]}.weight"]
            expected = matrices[:, _GRANITE[child][1]]
        elif family == "gpt_oss":  # published as one matrix, (I, O), with gate and up columns taking turns
            columns = {"gate_proj": slice(0, None, 2), "up_proj": slice(1, None, 2), "down_proj": slice(None)}[child]
            expected = stored[site.parameter][:, :, columns].mT
        else:
            path = path.replace(_TEXT, "language_model.model")  # as Kimi K2.5 was published
            expected = torch.stack([stored[f"{path}.{e}.{child}.weight"] for e in range(site.num_experts or 0)])
        parameter = base.parameters[site.parameter]
        assert torch.equal(site.select(parameter).cpu(), expected)


_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize(
    ("family", "changes"), [("phi3", {}), ("llama", {"max_position_embeddings": 64, "rope_parameters": _DYNAMIC})]
)
def test_frequencies_that_change_with_length_stay_within_the_context(
    tmp_path: Path, family: str, changes: dict[str, Any]
) -> None:
    """Catches a sequence that is computed by what is beside it, or by how long it becomes; a longer one is refused."""
    folder = save_family(tmp_path, family, **changes)
    engine = TorchEngine(base_models=[folder], precision="float32")
    assert engine._bases[folder].info.max_context_tokens == 64
    engine.create_model("m", folder, LoraSpec(rank=2, seed=1))
    data_D = random_datums([64, 20, 64])
    (output,) = _run(engine, {"m": data_D})
    loss, gradient = _reference(folder, engine, "m", data_D)
    assert output.metrics["loss:sum"] == near_sum(loss)
    assert_gradients_near(engine._model("m").gradient, gradient)
    _check_decoding(engine, folder, ("m",), 1.0, MODEL, max_tokens=64 - 21)
    longer = ForwardBackward(model_id="m", data_D=random_datums([65]), loss_fn="cross_entropy")
    (refused,) = engine.forward_backward([longer])
    assert isinstance(refused, InputError)
    assert "65" in str(refused)
    request = SampleRequest(
        request_id="r", base_model=folder, snapshot_id=None, prompt_T=PROMPT_T, seed=0, max_tokens=64 - 20
    )
    with pytest.raises(InputError, match=r"context window: 21 prompt tokens \+ 44 max_tokens > 64"):
        engine.submit_sample(request)
