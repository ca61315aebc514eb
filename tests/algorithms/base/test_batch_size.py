"""A published batch that makes few steps of little data is a smaller one, and that is said."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chz
import pytest

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.runs import FolderSpec
from cookhouse.runs.folder.choice import BY_DATA
from cookhouse.settings import SupervisedSettings

SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"


def context_of(config: Any) -> Any:
    folder = FolderSpec(
        path=Path("run"), recipe="supervised", config=chz.asdict(config), seed=0, behavior="raise", free_fields=()
    )
    return SimpleNamespace(folder=folder, notes=[])


@pytest.mark.parametrize(
    ("num_rows", "settings", "size"),
    [
        (160, {}, 4),
        (500, {}, 16),
        (3712, {}, 64),
        (3713, {}, 128),
        (20, {}, 4),
        (3, {}, 128),
        (160, {"num_epochs": 3}, 16),
        (160, {"max_steps": 2}, 128),
        (160, {"n_batches": 1}, 128),
        (160, {"batch_size": 128}, 128),
        (160, {"model_name": "cookhouse/tiny"}, 32),
    ],
)
def test_the_largest_power_of_two_that_gives_thirty_steps(num_rows: int, settings: dict[str, Any], size: int) -> None:
    """Catches 160 rows in two steps; and a batch that somebody named, or the embedded model's own, that changes."""
    make: Any = SupervisedConfig
    config = make(**{"model_name": SMALL, **settings})
    context = context_of(config)
    assert fit_batch(context, config, batches_of(num_rows), "rows").batch_size == size
    is_fitted = size not in (128, 32)
    assert context.folder.config["batch_size"] == size
    assert bool(context.notes) == (is_fitted or "batch_size" in settings)
    assert (context.folder.origins.get("batch_size") == BY_DATA) == is_fitted


def test_both_are_said_with_the_way_back() -> None:
    config = SupervisedConfig(model_name=SMALL)
    context = context_of(config)
    fit_batch(context, config, batches_of(160), "160 examples")
    fit_batch(context, SupervisedConfig(model_name=SMALL, batch_size=20), batches_of(160), "160 examples")
    assert context.notes == [
        "batch_size is 4: the published 128 would make 2 steps of 160 examples, and this makes 40; as published: "
        "batch_size=128",
        "batch_size=20 makes 8 steps of 160 examples, which teach little; a smaller batch_size, or more num_epochs, "
        "gives more",
    ]


def test_a_recipe_that_was_published_with_no_model_has_no_published_batch() -> None:
    config = SupervisedSettings(model_name=SMALL)
    context = context_of(config)
    assert fit_batch(context, config, batches_of(160), "rows") is config
    assert not context.notes
