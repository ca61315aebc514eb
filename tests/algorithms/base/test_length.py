"""Which setting of a run's length changes nothing is said."""

from typing import Any

import chz
import pytest

from cookhouse.algorithms.base.facts import steps_notes


@chz.chz
class Length:
    max_steps: int | None = 30
    num_epochs: int = 1


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"max_steps": 100}, "max_steps=100 changes nothing: num_epochs=1 ends after 60 steps"),
        ({"num_epochs": 3}, "num_epochs=3 changes nothing: max_steps=30 ends in epoch 1, and each has 60 steps"),
        ({"num_epochs": 3, "max_steps": 119}, "max_steps=119 ends in epoch 2"),
    ],
)
def test_what_changes_nothing_is_said(settings: dict[str, Any], note: str) -> None:
    """Catches epochs that are asked for and never begun, and steps that there is no data for."""
    (said,) = steps_notes(Length(**settings), 60)
    assert note in said


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_steps": None, "num_epochs": 3},
        {"max_steps": 60},
        {"max_steps": 121, "num_epochs": 3},
        {"max_steps": 5, "num_epochs": 5},  # num_rollouts=5: as many steps, however little data there is
    ],
)
def test_nothing_is_said_where_both_count_or_nobody_set_one(settings: dict[str, Any]) -> None:
    assert steps_notes(Length(**settings), 60) == []
