"""A published batch that makes few steps of little data is a smaller one, and that is said."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chz
import pytest

from cookhouse.algorithms.base.batch_size import batches_of, fit_batch
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.runs import FolderSpec
from cookhouse.runs.folder.choice import BY_DATA
from cookhouse.settings import SupervisedSettings

SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclass
class Context:
    folder: FolderSpec


@dataclass
class State:
    config: Any
    context: Any
    notes: list[str] = field(default_factory=list)


def state_of(config: Any) -> State:
    folder = FolderSpec(
        path=Path("run"), recipe="supervised", config=chz.asdict(config), seed=0, behavior="raise", free_fields=()
    )
    return State(config=config, context=Context(folder))


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
    state = state_of(make(**{"model_name": SMALL, **settings}))
    assert fit_batch(state, batches_of(num_rows), "rows") == size == state.config.batch_size
    is_fitted = size not in (128, 32)
    assert state.context.folder.config["batch_size"] == size
    assert bool(state.notes) == (is_fitted or "batch_size" in settings)
    assert (state.context.folder.origins.get("batch_size") == BY_DATA) == is_fitted


def test_both_are_said_with_the_way_back() -> None:
    state = state_of(SupervisedConfig(model_name=SMALL))
    fit_batch(state, batches_of(160), "160 examples")
    state.config = SupervisedConfig(model_name=SMALL, batch_size=20)
    fit_batch(state, batches_of(160), "160 examples")
    assert state.notes == [
        "batch_size is 4: the published 128 would make 2 steps of 160 examples, and this makes 40; as published: "
        "batch_size=128",
        "batch_size=20 makes 8 steps of 160 examples, which teach little; a smaller batch_size, or more num_epochs, "
        "gives more",
    ]


def test_a_recipe_that_was_published_with_no_model_has_no_published_batch() -> None:
    state = state_of(SupervisedSettings(model_name=SMALL))
    assert fit_batch(state, batches_of(160), "rows") == 128
    assert not state.notes
