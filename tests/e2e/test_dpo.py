"""`cookhouse run dpo` on the local engine."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Cookhouse
from tests.e2e.test_run import resume_command
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow

SETTINGS = (
    "batch_size=4",
    "max_steps=12",
    "save_every=5",
    "num_eval=4",
    "num_samples=1",
    "eval_max_tokens=16",
    "lora_rank=4",
    "seed=7",
    "learning_rate=1e-3",
    # Computed again by a resumed run, which is the harder way to the same numbers.
    "cache_reference=false",
)


def trained(run_folder: Path) -> dict[int, dict[str, Any]]:
    """Metrics by step, but for times; a line still being written is left out."""
    file = run_folder / "metrics.jsonl"
    rows = (
        [json.loads(line) for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []
    )
    return {
        row["step"]: {name: value for name, value in row.items() if not name.startswith("time/")}
        for row in rows
        if "train/dpo_loss" in row
    }


@pytest.mark.long
def test_an_interrupted_run_continues_to_the_bit_with_the_weights_it_began_with_as_reference(
    cookhouse: Cookhouse,
) -> None:
    # Catches a reference that is the base model, or the weights at the resume, and one that is off by rounding.
    first = cookhouse.run("run", "dpo", *SETTINGS, "log_path=first")
    assert first.returncode == 0, first.stderr
    start = trained(cookhouse.folder / "first")
    assert start[11]["train/margin"] > start[0]["train/margin"]

    begun = ("load_checkpoint_path=first",)
    whole = cookhouse.run("run", "dpo", *SETTINGS, *begun, "log_path=whole")
    assert whole.returncode == 0, whole.stderr
    expected = trained(cookhouse.folder / "whole")
    # What the sampler and the trainer make of the same weights is apart by rounding; base weights are far off.
    assert abs(expected[0]["train/margin"]) < 0.05 < start[11]["train/margin"]

    process = cookhouse.start("run", "dpo", *SETTINGS, *begun, "log_path=stopped")
    wait_until(lambda: len(trained(cookhouse.folder / "stopped")) >= 4 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert "interrupted and saved after" in output, output
    assert 4 <= len(trained(cookhouse.folder / "stopped")) < 12
    done = cookhouse.run(*resume_command(output))
    assert done.returncode == 0, done.stderr
    assert trained(cookhouse.folder / "stopped") == expected
