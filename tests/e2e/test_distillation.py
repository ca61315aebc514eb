"""Distillation on the local engine."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Cookhouse
from tests.e2e.test_run import resume_command
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.long

COMMON = ("batch_size=4", "max_steps=12", "save_every=5", "num_eval=4", "num_samples=1", "lora_rank=4", "seed=7")
SETTINGS = {
    "on_policy_distillation": ("learning_rate=2e-3",),
    "multi_teacher_distillation": ("learning_rate=2e-3", "max_tokens=8"),
    # Answers that a resumed run asks for itself, which is the harder way to the same numbers, and tokens of theirs that
    # are likely.
    "off_policy_distillation": ("learning_rate=5e-3", "teacher_samples=fresh", "teacher_top_k=4"),
    "prompt_distillation": ("learning_rate=2e-3", "max_tokens=16"),
}


def trained(run_folder: Path) -> dict[int, dict[str, Any]]:
    """Metrics by step, but for times; a line still being written is left out."""
    file = run_folder / "metrics.jsonl"
    lines = file.read_text().splitlines(True) if file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return {
        row["step"]: {name: value for name, value in row.items() if not name.startswith("time/")}
        for row in rows
        if "optim/lr" in row
    }


@pytest.mark.parametrize("recipe", SETTINGS)
def test_an_interrupted_run_continues_to_the_bit(cookhouse: Cookhouse, recipe: str) -> None:
    settings = (*COMMON, *SETTINGS[recipe])
    whole = cookhouse.run("run", recipe, *settings, "log_path=whole")
    assert whole.returncode == 0, whole.stderr
    expected = trained(cookhouse.folder / "whole")
    process = cookhouse.start("run", recipe, *settings, "log_path=stopped")
    wait_until(lambda: len(trained(cookhouse.folder / "stopped")) >= 4 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert "interrupted and saved after" in output, output
    assert 4 <= len(trained(cookhouse.folder / "stopped")) < 12
    done = cookhouse.run(*resume_command(output))
    assert done.returncode == 0, done.stderr
    assert trained(cookhouse.folder / "stopped") == expected
