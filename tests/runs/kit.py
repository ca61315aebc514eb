"""Run directories made by hand: what a listing, a comparison and a deletion read of one."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


def make_run(
    path: Path,
    *,
    number: int = 0,
    recipe: str = "supervised",
    status: str = "finished",
    rows: Sequence[dict[str, Any]] = (),
    saved: Sequence[str] = (),
    weights: Sequence[str] = (),
    **settings: Any,
) -> Path:
    """A run that began `number` minutes after the first one, and took ten seconds. It is there at once as a whole, for
    whoever looks meanwhile.
    """
    made = path.with_name(f".{path.name}"[:200])
    made.mkdir(parents=True)
    started_at = START + timedelta(minutes=number)
    launch = {
        "started_at": started_at.isoformat(),
        "ended_at": (started_at + timedelta(seconds=10)).isoformat(),
        "status": status,
    }
    config = {"model_name": "m", "log_path": str(path), "behavior_if_log_dir_exists": "ask", **settings}
    point = {"name": "n", "epoch": 0, "batch": 1, "step": 1, "final": False, "sampler_path": None}
    lines = {
        "metrics.jsonl": [json.dumps(row) for row in rows],
        "checkpoints.jsonl": [json.dumps({**point, "state_path": place}) for place in saved],
    }
    (made / "config.json").write_text(
        json.dumps({"recipe": recipe, "config": config, "weights": [*weights], "seed": 0})
    )
    (made / "run.json").write_text(json.dumps({"launches": [launch]}))
    for name, some in lines.items():
        if some:
            (made / name).write_text("".join(line + "\n" for line in some))
    return made.rename(path)
