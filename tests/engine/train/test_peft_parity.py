"""Catches a LoRA that is not the field's: PEFT on the same weights and data must give the same losses and gradients."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import ALPHA, AdapterLayout
from tests.engine.conftest import random_datums
from tests.engine.families import load_reference, save_family
from tests.engine.numerics import MODEL, near_sum

RANK = 8
FAMILIES = ("granite", "cohere2", "gemma2", "phi3", "qwen3_5")
"""With a factor or a cap of logits, a cap of scores, fused projections, and gated delta layers."""


def _peft_model(folder: str, layout: AdapterLayout, flat: torch.Tensor) -> tuple[Any, list[torch.nn.Parameter]]:
    """A PEFT model that starts from the same matrices, and its trained parameters in the order of our flat tensor."""
    model = load_reference(folder, attn_implementation="eager")
    targets = sorted({site.name.rpartition(".")[2] for site in layout.sites})
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets)
    model = peft.get_peft_model(model, config).eval()
    parameters = []
    for name, (a_RI, b_OR) in layout.views(flat).items():
        module = model.get_submodule(f"base_model.model.{name}")
        for part, value in ((module.lora_A, a_RI), (module.lora_B, b_OR)):
            part["default"].weight.data.copy_(value)
            parameters.append(part["default"].weight)
    return model, parameters


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft calls it
def test_ten_steps_equal_peft_with_adamw(engine: TorchEngine, qwen3_folder: str) -> None:
    _check_steps(engine, qwen3_folder, 10)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_steps_of_other_families_equal_peft(family: str, tmp_path: Path) -> None:
    folder = save_family(tmp_path, family)
    _check_steps(TorchEngine(base_models=[folder], precision="float32"), folder, 2)


def _check_steps(engine: TorchEngine, folder: str, num_steps: int) -> None:
    """Loss and gradient of each step of the engine, and of PEFT from the same start."""
    engine.create_model("m", folder, LoraSpec(rank=RANK, seed=1, train_unembed=False))
    adapter = engine._model("m")
    assert isinstance(adapter, Adapter)
    model, parameters = _peft_model(folder, adapter.layout, adapter.params)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    for step in range(num_steps):
        data_D = random_datums([40, 9, 23], step)
        (output,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy")])
        assert isinstance(output, ForwardBackwardOutput)
        loss = torch.zeros(())
        for datum in data_D:
            logits = model(input_ids=torch.from_numpy(datum.tokens_T)[None]).logits[0]
            targets = torch.from_numpy(datum.loss_fn_inputs["target_tokens"])[:, None]
            logprobs = torch.log_softmax(logits, -1).gather(1, targets)[:, 0]
            loss = loss - (logprobs * torch.from_numpy(datum.loss_fn_inputs["weights"])).sum()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        assert output.metrics["loss:sum"] == near_sum(float(loss.detach()))
        gradient = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
        largest = float(gradient.abs().max())
        # After some steps the two have drifted by the rounding of ten Adam steps; the first gradients are the claim.
        tolerance = MODEL if step == 0 else 64 * MODEL
        torch.testing.assert_close(adapter.gradient.cpu(), gradient, rtol=0.0, atol=tolerance * largest)
        engine.optim_step("m", AdamStep(learning_rate=1e-3))
        optimizer.step()
