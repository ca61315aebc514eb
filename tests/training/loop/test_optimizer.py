from typing import Any

import pytest

from cookhouse.settings import OptimizerSettings
from cookhouse.training import AdamSchedule


def test_settings_are_the_papers_not_the_sdks() -> None:
    # Catches ε 1e-12 and β2 0.999, which are what one gets by not saying.
    adam = AdamSchedule(settings=OptimizerSettings(learning_rate=2e-3), total_steps=4).params(1)
    assert adam.learning_rate == pytest.approx(1.5e-3, rel=1e-12)
    assert (adam.beta1, adam.beta2, adam.eps) == (0.9, 0.95, 1e-8)
    assert (adam.weight_decay, adam.grad_clip_norm) == (0.0, 0.0)


@pytest.mark.parametrize("schedule", ["warmup_linear", "warmup_cosine"])
def test_a_schedule_with_a_warm_up_has_one_where_nobody_says_how_long(schedule: str) -> None:
    # Catches a run that asks for a warm-up and begins at the full rate.
    adam = AdamSchedule(settings=OptimizerSettings(learning_rate=1.0, lr_schedule=schedule), total_steps=35)
    rates = [adam.params(step).learning_rate for step in range(35)]
    assert rates[:5] == [0.0, 0.25, 0.5, 0.75, 1.0], "4 of 35 steps"
    assert rates[5] < 1.0
    assert adam.notes == [
        "warmup_steps is not set: the learning rate rises over the first 4 of 35 steps, a tenth of them"
    ]


@pytest.mark.parametrize(
    ("settings", "total_steps", "first"),
    [
        ({"lr_schedule": "warmup_linear", "warmup_steps": 0}, 10, 1.0),
        ({"lr_schedule": "warmup_linear"}, 1, 1.0),
        ({"lr_schedule": "linear"}, 10, 1.0),
        ({"lr_schedule": "warmup_linear", "warmup_steps": 5}, 10, 0.0),
    ],
)
def test_nothing_is_said_where_nothing_is_chosen(settings: Any, total_steps: int, first: float) -> None:
    adam = AdamSchedule(settings=OptimizerSettings(learning_rate=1.0, **settings), total_steps=total_steps)
    assert adam.params(0).learning_rate == first
    assert adam.notes == []
