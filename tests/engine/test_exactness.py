"""Catches a sampler that is not its trainer in bf16: a policy gradient then learns from tokens of another policy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cookhouse.assets import TINY_MODEL
from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import (
    ForwardBackward,
    ForwardBackwardOutput,
    LoraSpec,
    SampleOutput,
    SampleRequest,
    TrainingDatum,
)
from cookhouse.engine.train.full import FullModel
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.families import save_family
from tests.engine.stepping import advance

RANKS = {"a": 32, "b": 5}
TINY = "the embedded model"
EXACT: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 64, "intermediate_size": 96},
    "qwen2": {"hidden_size": 64, "intermediate_size": 96},
    "qwen3": {"hidden_size": 96, "head_dim": 32, "intermediate_size": 160},
    "odd sizes": {"hidden_size": 52, "num_attention_heads": 26, "head_dim": 12, "intermediate_size": 49},
}
"""Small models that the fused pass samples from, in whole tiles of a matrix unit and in none."""


def _folder(name: str, path: Path) -> str:
    return TINY_MODEL if name == TINY else save_family(path / "model", "llama" if " " in name else name, **EXACT[name])


def _prompts(count: int) -> list[NDArray[np.int64]]:
    """Lengths in a block of the cache, at its end and behind it."""
    return [np.random.default_rng(i).integers(0, VOCAB_SIZE - 10, 1 + 11 * i) for i in range(count)]


def _engine(folder: str, ranks: Mapping[str, int] = RANKS) -> TorchEngine:
    """Runs by their ranks; their weights change what the model says."""
    engine = TorchEngine(base_models=[folder], device="cpu", precision="bfloat16")
    for model_id, rank in ranks.items():
        engine.create_model(model_id, folder, LoraSpec(rank=rank, seed=rank))
        model = engine._model(model_id)
        model.params.add_(0.02 * torch.randn(model.params.shape, generator=torch.Generator().manual_seed(rank)))
        if isinstance(model, FullModel):
            model.refresh()
        engine.snapshot(model_id, model_id)
    return engine


def _pairs(folder: str, ranks: Mapping[str, int] = RANKS) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Log-probabilities of what is sampled: the sampler's, and the trainer's."""
    engine = _engine(folder, ranks)
    sampled = _sample(engine, folder, ranks)
    pairs = []
    for model_id in ranks:
        own = [(tokens_T, logprobs_T) for owner, tokens_T, logprobs_T in sampled if owner == model_id]
        trained = _train(engine, model_id, [tokens_T for tokens_T, _ in own])
        pairs += [
            (logprobs_T, want_T[-len(logprobs_T) :]) for (_, logprobs_T), want_T in zip(own, trained, strict=True)
        ]
    return pairs


def _sample(
    engine: TorchEngine, folder: str, ranks: Mapping[str, int]
) -> list[tuple[str, NDArray[np.int64], NDArray[np.float32]]]:
    """For each run, prompt and sample: the whole sequence, and log-probabilities of what was sampled, all at once."""
    for model_id in ranks:
        for i, prompt_T in enumerate(_prompts(5)):
            request = SampleRequest(
                request_id=f"{model_id}{i}",
                base_model=folder,
                snapshot_id=model_id,
                prompt_T=prompt_T,
                seed=i,
                num_samples=1 + i % 2,
                max_tokens=12,
                stop=[],
            )
            engine.submit_sample(request)
    outputs: list[SampleOutput] = []
    while engine.has_samples():
        outputs += advance(engine)
    found = []
    for output in outputs:
        prompt_T = _prompts(5)[int(output.request_id[1:])]
        found += [
            (output.request_id[0], np.concatenate([prompt_T, one.tokens_T]), one.logprobs_T) for one in output.sequences
        ]
    return found


def _train(engine: TorchEngine, model_id: str, sequences: list[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
    data_D = [
        TrainingDatum(
            tokens_T=tokens_T[:-1],
            loss_fn_inputs={"target_tokens": tokens_T[1:], "weights": np.ones(len(tokens_T) - 1, np.float32)},
        )
        for tokens_T in sequences
    ]
    (output,) = engine.forward_backward([ForwardBackward(model_id=model_id, data_D=data_D, loss_fn="cross_entropy")])
    assert isinstance(output, ForwardBackwardOutput), output
    return list(output.logprobs_D)


@pytest.mark.usefixtures("fused_sampling")
@pytest.mark.parametrize("name", [TINY, *EXACT])
def test_the_sampler_is_the_trainer_to_the_bit(name: str, tmp_path: Path) -> None:
    """Would catch a product that one side rounds and the other does not, sums in another order for one row than for
    many, and an adapter that is added to what is rounded already.
    """
    for sampled_T, trained_T in _pairs(_folder(name, tmp_path)):
        np.testing.assert_array_equal(sampled_T, trained_T)


@pytest.mark.usefixtures("fused_sampling")
def test_so_it_is_where_all_weights_are_trained(tmp_path: Path) -> None:
    """Would catch norms that torch computes where they are trained: between two roundings, sampling has one."""
    for sampled_T, trained_T in _pairs(_folder("qwen3", tmp_path), {"f": 0}):
        np.testing.assert_array_equal(sampled_T, trained_T)


@pytest.mark.usefixtures("fused_sampling")
@pytest.mark.parametrize("family", ["deepseek_v3", "gemma2", "granite", "qwen3_moe"])
def test_what_torch_samples_is_near_the_trainer(family: str, tmp_path: Path) -> None:
    """Would catch products, logits or attention rounded elsewhere on one side: these gave a mean of 1e-2. What is
    left are numbers, one in thousands, that round the other way where attention adds in another order.
    """
    differences = np.concatenate(
        [one_T - other_T for one_T, other_T in _pairs(save_family(tmp_path / "model", family))]
    )
    assert np.abs(differences).mean() < 1e-3
    assert 0.5 * np.mean(differences**2) < 1e-5


@pytest.mark.usefixtures("fused_sampling")
def test_a_row_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    """In training: alone, and between others, in passes that are computed by columns and by rows."""
    folder = _folder("qwen3", tmp_path)
    engine = _engine(folder)
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, VOCAB_SIZE - 10, length) for length in (7, 300, 41, 500)]
    together = _train(engine, "a", sequences)
    for sequence, want_T in zip(sequences, together, strict=True):
        (alone_T,) = _train(engine, "a", [sequence])
        np.testing.assert_array_equal(alone_T, want_T)
