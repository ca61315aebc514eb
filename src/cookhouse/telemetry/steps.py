"""Steps as people count them: k of n, from 1. In files, cursors and sinks `step` is how many were taken before."""

from collections.abc import Mapping
from typing import Any

from cookhouse.telemetry.declared import is_held_out


def step_number(step: int, metric: str = "") -> int:
    """The step that is taken after `step` others; of a metric that is held out, how many the measured weights had
    taken: 0 before training.
    """
    return step if is_held_out(metric) else step + 1


def last_step_of(row: Mapping[str, Any]) -> int:
    """The last step that a row of metrics covers; the row of trained weights has held-out metrics alone."""
    return max((step_number(row["step"], name) for name in row if name != "step"), default=row["step"])


def after_step(step: int) -> str:
    """Words for weights, by the steps that they had taken."""
    return f"after step {step:,}" if step else "before training"
