"""Catches a training step that is not the field's: ten of TRL's SFTTrainer on the same data must give the same losses.

TRL comes with the `bench` extra, so this runs where that is installed and is skipped elsewhere.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec, TrainingDatum
from cookhouse.engine.lora.lora import ALPHA
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.numerics import MODEL
from tests.engine.train.test_peft_parity import RANK

trl: Any = pytest.importorskip("trl")
datasets: Any = pytest.importorskip("datasets")
peft: Any = pytest.importorskip("peft")
SFTTrainer: Any = trl.SFTTrainer

_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_NUM_STEPS = 10
_BATCH = 4
_LEARNING_RATE = 5e-3


def _rows() -> list[dict[str, list[int]]]:
    """Sequences of unequal length, of which a prompt carries no loss."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(_NUM_STEPS * _BATCH):
        tokens = rng.integers(0, VOCAB_SIZE - 8, rng.integers(8, 40)).tolist()
        num_prompt = int(rng.integers(1, 6))
        rows.append({"input_ids": tokens, "labels": [-100] * num_prompt + tokens[num_prompt:]})
    return rows


def _ours(engine: TorchEngine, rows: list[dict[str, list[int]]]) -> list[float]:
    """Losses per step; TRL's mean over the trained tokens of a batch is the denominator in the weights."""
    losses = []
    for step in range(_NUM_STEPS):
        batch = rows[step * _BATCH : (step + 1) * _BATCH]
        num_trained = sum(label != -100 for row in batch for label in row["labels"])
        data_D = [
            TrainingDatum(
                tokens_T=np.array(row["input_ids"][:-1]),
                loss_fn_inputs={
                    "target_tokens": np.array(row["input_ids"][1:]),
                    "weights": np.array([label != -100 for label in row["labels"][1:]], np.float32)
                    / np.float32(num_trained),
                },
            )
            for row in batch
        ]
        (output,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy")])
        assert isinstance(output, ForwardBackwardOutput)
        losses.append(output.metrics["loss:sum"])
        engine.optim_step("m", AdamStep(learning_rate=_LEARNING_RATE))
    return losses


def _trl(folder: str, rows: list[dict[str, list[int]]], engine: TorchEngine, output: Path) -> list[float]:
    losses: list[float] = []

    class Recorded(SFTTrainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            losses.append(float((loss[0] if isinstance(loss, tuple) else loss).detach()))  # the log rounds it
            return loss

    trainer = Recorded(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=trl.SFTConfig(
            output_dir=str(output),
            per_device_train_batch_size=_BATCH,
            max_steps=_NUM_STEPS,
            learning_rate=_LEARNING_RATE,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            weight_decay=0.0,
            max_grad_norm=0.0,
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
            remove_unused_columns=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder),
        peft_config=peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=_TARGETS),
    )
    adapter = engine._model("m")
    for name, (a_RI, _) in adapter.layout.views(adapter.params).items():
        trainer.model.get_submodule(f"base_model.model.{name}").lora_A["default"].weight.data.copy_(a_RI)
    trainer.train()
    return losses


@pytest.mark.filterwarnings("ignore")  # TRL's, PEFT's and Accelerate's warnings are not ours
def test_ten_steps_have_the_losses_of_trl(engine: TorchEngine, qwen3_folder: str, tmp_path: Path) -> None:
    engine.create_model("m", qwen3_folder, LoraSpec(rank=RANK, seed=1, train_unembed=False))
    rows = _rows()
    theirs = _trl(qwen3_folder, rows, engine, tmp_path)
    ours = _ours(engine, rows)
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=64 * MODEL)  # drifted by the rounding of the steps before
    assert abs(ours[-1] - ours[0]) > 0.01  # the steps did something
