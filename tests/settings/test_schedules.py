"""Learning rate schedules, against hand calculation."""

import pytest

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.settings.schedules import SCHEDULES, multiplier


@pytest.mark.parametrize(
    ("name", "step", "warmup", "expected"),
    [
        ("constant", 0, 0, 1.0),
        ("constant", 9, 0, 1.0),
        ("linear", 0, 0, 1.0),
        ("linear", 3, 0, 0.7),
        ("linear", 9, 0, 0.1),
        ("linear", 10, 0, 0.0),
        ("linear", 12, 0, 0.0),
        ("cosine", 0, 0, 1.0),
        ("cosine", 5, 0, 0.5),
        ("cosine", 10, 0, 0.0),
        ("warmup_linear", 0, 4, 0.0),
        ("warmup_linear", 1, 4, 0.25),
        ("warmup_linear", 4, 4, 1.0),
        ("warmup_linear", 7, 4, 0.5),
        ("warmup_linear", 3, 0, 0.7),
        ("warmup_cosine", 2, 4, 0.5),
        ("warmup_cosine", 4, 4, 1.0),
        ("warmup_cosine", 6, 4, 0.75),
        ("warmup_cosine", 7, 4, 0.5),
    ],
)
def test_multiplier_by_hand_for_ten_steps(name: str, step: int, warmup: int, expected: float) -> None:
    assert multiplier(name, step, 10, warmup) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("linear", 0, 0), "total_steps is 0"),
        (("linear", 0, -3), "total_steps is -3"),
        (("warmup_linear", 0, 5, 5), "warmup_steps is 5"),
        (("warmup_linear", 0, 5, -1), "warmup_steps is -1"),
        (("linear", 0, 5, 2), "has no warm-up"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(arguments: tuple[str, int, int], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        multiplier(*arguments)


def test_an_unknown_schedule_lists_near_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean cosine"):
        multiplier("cosin", 0, 10)
    assert all(multiplier(name, 0, 10) == 1.0 for name in SCHEDULES)
