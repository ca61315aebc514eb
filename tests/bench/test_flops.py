"""Catches a utilization that counts other work than is done."""

import peft
import pytest
import torch
from bench.flops import TrainingWork, peak_flops, training_work
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import LoraSpec

RANK = 8


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft calls it
def test_the_count_is_that_of_the_plainest_training_of_the_same_model() -> None:
    """Adapters by peft over the model of transformers, counted by torch: every query meets every key there."""
    engine = TorchEngine(base_models=["cookhouse/tiny"], precision="float32")
    base = engine._bases["cookhouse/tiny"]
    work = training_work(base, base.adapter_layout(LoraSpec(rank=RANK, train_unembed=False)))
    model = AutoModelForCausalLM.from_pretrained(base.info.tokenizer_id, attn_implementation="eager")
    model = peft.get_peft_model(model, peft.LoraConfig(r=RANK, target_modules="all-linear"))
    model.enable_input_require_grads()  # as ours: the gradient reaches the embeddings
    length = 300
    tokens = torch.zeros(1, length, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, labels=tokens).loss.backward()
    expected = work.of_tokens(length) + work.of_pairs(length * length)
    # Torch also counts the angles of the rotary embedding, one product for each position and pair of features.
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-4)


def test_a_position_attends_to_itself_and_those_before_it() -> None:
    work = TrainingWork(num_frozen=100, num_adapter=10, attention_features=5)
    assert work.flops([1]) == 4 * 100 + 6 * 10 + 12 * 5
    assert work.flops([3, 2]) == 5 * (4 * 100 + 6 * 10) + (6 + 3) * 12 * 5


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA GeForce RTX 4090", 165),
    ],
)
def test_a_peak_is_that_of_the_card(name: str, tflops: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a card found under the name of a faster one of its family."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    peak, source = peak_flops("cuda", "bfloat16", None)
    assert peak == tflops * 1e12
    assert name in source
    assert peak_flops("cuda", "bfloat16", 1.5) == (1.5e12, "as given")
