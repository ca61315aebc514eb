"""Catches memory that grows with the square of a sequence's length."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.families import save_family

_PEAK = """
import pathlib, re, sys
import numpy as np
from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec, SampleRequest
from tests.engine.conftest import random_datums

folder, length = sys.argv[1], int(sys.argv[2])
engine = TorchEngine(base_models=[folder], device="cpu", precision="float32", max_activation_bytes=0)
engine.create_model("m", folder, LoraSpec(rank=2, train_unembed=False))

def peak_kilobytes():
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

def train(num_tokens):
    request = ForwardBackward(model_id="m", data_D=random_datums([num_tokens]), loss_fn="cross_entropy")
    (output,) = engine.forward_backward([request])
    assert isinstance(output, ForwardBackwardOutput), output

def sample(num_tokens):
    prompt_T = np.zeros(num_tokens, np.int64)
    engine.submit_sample(SampleRequest(
        request_id="r", base_model=folder, snapshot_id=None, prompt_T=prompt_T, max_tokens=2, seed=0, stop=[]
    ))
    while engine.has_samples():
        engine.step_samples()

run = {"train": train, "sample": sample}[sys.argv[3]]
run(256)
small = peak_kilobytes()
run(length)
print(peak_kilobytes() - small)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train", "sample"])
def test_memory_grows_with_the_length_of_a_sequence_and_not_with_its_square(tmp_path: Path, kind: str) -> None:
    """Four times as long: four times as much, where scores of all positions would take sixteen times."""
    folder = save_family(
        tmp_path, "qwen2", hidden_size=64, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=40_960
    )
    shorter, longer = (
        int(
            subprocess.run(
                [sys.executable, "-c", _PEAK, folder, length, kind], capture_output=True, text=True, check=True
            ).stdout
        )
        for length in ("4096", "16384")
    )
    assert longer < 6 * shorter + 32 * 1024
