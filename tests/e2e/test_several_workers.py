"""`cookhouse run rl_basic` over a server of several workers: the same run to the bit as over one."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.e2e.conftest import Cookhouse, exported_by

from cookhouse.telemetry import read_metrics

pytestmark = pytest.mark.slow

SETTINGS = ("batch_size=2", "group_size=4", "max_steps=3", "num_eval=2", "num_samples=1", "lora_rank=4", "seed=7")
SHAPES = {"one": (), "together": ("--workers", "2"), "apart": ("--trainers", "1", "--samplers", "1")}


def rows_over(folder: Path, shape: str) -> list[Mapping[str, object]]:
    """The metrics of a run, but for what depends on time; each engine computes with one thread."""
    cookhouse = Cookhouse(folder)
    try:
        exports = exported_by(cookhouse.start("serve", "--port", "0", "--state-dir", "state", *SHAPES[shape]))
        done = cookhouse.run("run", "rl_basic", *SETTINGS, "log_path=run", env=exports)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        cookhouse.close()
    rows = read_metrics(folder / "run" / "metrics.jsonl")
    return [{name: value for name, value in row.items() if "time" not in name and "second" not in name} for row in rows]


def test_a_run_is_the_same_over_several_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Would catch samples of other weights, a seed that depends on the worker, and a step that is lost on the way."""
    one, together, apart = (rows_over(tmp_path_factory.mktemp(shape), shape) for shape in SHAPES)
    assert len(one) >= 3
    assert together == one
    assert apart == one
