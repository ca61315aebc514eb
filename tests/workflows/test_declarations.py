"""What stages declare to read and to write is what they do, in runs of a few steps over no-op adapters."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import chz
import pytest
from tests.workflows.recording import Recorder

from cookhouse.adapters import Adapters
from cookhouse.recipes import find_recipe, pipeline_recipe, run_async
from cookhouse.settings import RunSettings
from cookhouse.workflows import ChildRun

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = {"max_steps": 2, "num_samples": 1, "num_eval": 2, "batch_size": 2}
ROLLOUTS = {**FEW, "group_size": 2, "max_tokens": 8}
REGISTERED = {"registered_model_name": "mine"}


@chz.chz
class _Config(RunSettings):
    """Of a pipeline."""


def _children(config: _Config) -> Sequence[ChildRun]:
    del config
    return [ChildRun(name="first", recipe="rl_basic", settings=lambda _: {**ROLLOUTS, "max_steps": 1})]


PIPELINE = pipeline_recipe(name="chain", description="One run.", config_class=_Config, runs=_children)
RUNS: Sequence[tuple[Any, dict[str, Any]]] = (
    ("supervised", {**FEW, **REGISTERED, "n_train_samples": 8, "save_every": 1, "eval_every": 1, "keep_best": "auto"}),
    ("dpo", {**FEW, "preference_model": "cookhouse/tiny"}),
    ("preference_model", {**FEW, "num_eval": 8, "max_length": 88}),  # some held-out rows are longer
    ("rl_basic", {**ROLLOUTS, "kl_coef": 0.1, "compute_post_kl": True}),
    ("preference_rl", {**ROLLOUTS, "preference_model": "cookhouse/tiny"}),
    ("on_policy_distillation", ROLLOUTS),
    ("prompt_distillation", FEW),
    ("sl_loop", {"max_steps": 2, "n_train_samples": 8, "batch_size": 2, **REGISTERED}),
    ("eval", {"limit": 2}),
    (
        "cookhouse.recipes.run_sweep:RECIPE",
        {"recipe": "rl_basic", "runs": [{**ROLLOUTS, "max_steps": 1}], **REGISTERED},
    ),
    (
        "cookhouse.recipes.run_sweep:RECIPE",
        {
            "recipe": "supervised",
            "runs": [{**FEW, "n_train_samples": 8, "lora_rank": rank} for rank in (4, 8)],
            "min_steps": 1,
            "max_steps": 2,
        },
    ),
    (PIPELINE, {}),
    (f"{EXAMPLES}/online_dpo.py:RECIPE", ROLLOUTS),
)
ALLOWED = {  # with the reason
    "sweep.runs declares in vain errors": "written where a run of the sweep fails",
    "workflows.reinforcement.rollouts.build_env_group declares in vain second_models": "where one is asked for",
}


async def test_stages_do_what_they_declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a stage that reads what may not be there yet, writes what others do not count on, or asks in vain for
    others to run before it.
    """
    monkeypatch.chdir(tmp_path)
    recorder = Recorder()
    for number, (recipe, settings) in enumerate(RUNS):
        found = find_recipe(recipe) if isinstance(recipe, str) else recipe
        config = {**settings, "log_path": f"runs/{number}"}
        # Without a completer of their own, runs ask the service for another model.
        adapters = replace(Adapters.noop(sinks=[]), completer=None)
        await run_async(recorder.recorded(found), config, adapters=adapters)
    wrong = {
        f"{name} {verb} {field}"
        for name, touched in recorder.touched.items()
        for verb, names in (
            ("reads without declaring it", touched.undeclared_reads),
            ("writes without declaring it", touched.undeclared_writes),
            ("declares in vain", touched.untouched),
        )
        for field in names
    }
    assert sorted(wrong) == sorted(ALLOWED)
