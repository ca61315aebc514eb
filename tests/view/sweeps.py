"""Sweeps made by hand, some of whose runs are over."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.runs.kit import make_run

from cookhouse.sweeps.record import part_names


def make_sweep(
    folder: Path,
    parts: Sequence[dict[str, Any]],
    values: Sequence[float | None],
    *,
    status: str = "running",
    **settings: Any,
) -> list[str]:
    """A sweep whose runs come to some accuracies on 200 questions; None: one that has not begun. Their names."""
    make_run(folder, recipe="sweep", status=status)
    record = json.loads((folder / "config.json").read_text())
    own = {"recipe": "supervised", "runs": list(parts), "metric": None, "direction": None, "jobs": 1, **settings}
    (folder / "config.json").write_text(json.dumps({**record, "config": {**record["config"], **own}}))
    names = part_names(parts)
    for number, (name, part, value) in enumerate(zip(names, parts, values, strict=True)):
        if value is None:
            continue
        error = (value * (1 - value) / 200) ** 0.5
        rows = [
            {"step": 0, "train/nll": 3.0, "test/exact_match": 0.0, "test/exact_match_stderr": 0.0},
            {"step": 9, "train/nll": 1.0, "test/exact_match": value, "test/exact_match_stderr": error},
        ]
        make_run(folder / name, number=number, rows=rows, **part)
    return names


def fail_run(sweep: Path, name: str, why: str) -> None:
    """Say of a run of a sweep that it failed."""
    (sweep / "sweep.json").write_text(json.dumps({name: why}))


GRID: list[dict[str, Any]] = [
    {"learning_rate": rate, "lora_rank": rank, "seed": 0} for rate in (1e-4, 3e-4, 1e-3, 3e-3) for rank in (8, 32)
]
REACHED: list[float | None] = [0.41, 0.47, 0.62, 0.71, 0.8, 0.83, None, None]
