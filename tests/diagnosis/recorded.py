"""Recorded runs of the recipes: what rules read of them. `python -m tests.diagnosis.recorded RUN ...` adds some."""

import json
import sys
from pathlib import Path
from typing import Any

from cookhouse.diagnosis import RunFacts, is_read
from cookhouse.runs import read_history, read_record
from cookhouse.telemetry import find_metric, is_held_out

DATA = Path(__file__).parent / "data"
_SETTINGS = (
    *("advantage", "constant_reward_groups", "overlong_answers", "loss_fn", "max_tokens", "temperature", "group_size"),
    *("max_steps_off_policy", "num_substeps", "ppo_epochs", "learning_rate", "lr_schedule", "kl_coef", "batch_size"),
)
_DIGITS = 4


def recorded(recipe: str) -> tuple[list[dict[str, Any]], RunFacts]:
    """The rows of a recorded run, and the facts of it."""
    found = json.loads((DATA / f"{recipe}.json").read_text(encoding="utf-8"))
    facts = RunFacts(settings=found["settings"], total_steps=found["total_steps"], declared={})
    return found["rows"], facts


def record(folder: Path) -> None:
    """Keep the run in a folder as that of its recipe."""
    run, [launch, *_] = read_record(folder), read_history(folder).launches
    found: dict[str, Any] = {
        "settings": {name: value for name, value in run.config["config"].items() if name in _SETTINGS},
        "total_steps": launch.total_steps,
        "rows": [
            {name: _short(value) for name, value in row.items() if name == "step" or _is_kept(name)}
            for row in run.metrics
        ],
    }
    text = ",\n  ".join(json.dumps(row) for row in found.pop("rows"))
    head = json.dumps(found)[:-1]
    (DATA / f"{run.config['recipe']}.json").write_text(f'{head}, "rows": [\n  {text}\n]}}\n', encoding="utf-8")


def _is_kept(name: str) -> bool:
    is_telling = not is_held_out(name) or find_metric(name.removesuffix("_stderr")).headline is not None
    return is_read(name) and is_telling


def _short(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    for each in sys.argv[1:]:
        record(Path(each))
