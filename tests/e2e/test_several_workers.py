"""Recipes over a server of several workers, processes or Ray's: the same runs to the bit as over one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.e2e.conftest import Cookhouse, exported_by
from tests.engine.transports.ray.fixtures import ray_is_here

from cookhouse.telemetry import read_metrics

__all__ = ["ray_is_here"]
pytestmark = pytest.mark.slow

SAMPLING = ("group_size=4", "num_eval=2", "num_samples=1")
RECIPES: Mapping[str, Sequence[str]] = {
    "supervised": ("num_eval=2", "num_samples=1", "eval_max_tokens=8"),
    "rl_basic": SAMPLING,
    "dpo": ("num_eval=2", "num_samples=1", "eval_max_tokens=8"),
    "code_rl": SAMPLING,
}
"""With what each is small."""
SHAPES = {
    "one": (),
    "together": ("--workers", "2"),
    "apart": ("--trainers", "1", "--samplers", "1"),
    "on Ray": ("--ray", "--workers", "2", "--worker-cpus", "1"),
}

Rows = list[Mapping[str, object]]


def rows_over(folder: Path, shape: str, recipes: Sequence[str]) -> dict[str, Rows]:
    """The metrics of a run of each recipe, but for what depends on time; each engine computes with one thread."""
    cookhouse = Cookhouse(folder)
    try:
        exports = exported_by(cookhouse.start("serve", "--port", "0", "--state-dir", "state", *SHAPES[shape]))
        return {recipe: rows_of(cookhouse, recipe, exports) for recipe in recipes}
    finally:
        cookhouse.close()


def rows_of(cookhouse: Cookhouse, recipe: str, exports: Mapping[str, str]) -> Rows:
    small = ("batch_size=2", "max_steps=3", "lora_rank=4", "seed=7")
    done = cookhouse.run("run", recipe, *small, *RECIPES[recipe], f"log_path={recipe}", env=exports)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_metrics(cookhouse.folder / recipe / "metrics.jsonl")
    assert len(rows) >= 3
    return [{name: value for name, value in row.items() if "time" not in name and "second" not in name} for row in rows]


@pytest.mark.long
def test_a_run_is_the_same_over_several_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Would catch samples of other weights, a seed that depends on the worker, and a step that is lost on the way."""
    one, together, apart = (
        rows_over(tmp_path_factory.mktemp(shape), shape, ["rl_basic"]) for shape in ("one", "together", "apart")
    )
    assert together == one
    assert apart == one


@pytest.mark.ray
@pytest.mark.usefixtures("ray_is_here")
def test_runs_are_the_same_on_ray(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Would catch numbers that change on their way through Ray, and threads or a device other than those asked for."""
    one, on_ray = (
        rows_over(tmp_path_factory.mktemp(shape.replace(" ", "-")), shape, [*RECIPES]) for shape in ("one", "on Ray")
    )
    for recipe, rows in one.items():
        assert on_ray[recipe] == rows, recipe
