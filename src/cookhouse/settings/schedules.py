"""Learning rate schedules: a multiplier of the peak rate, as a function of the step alone."""

import math

from cookhouse.errors import InputError, UnknownNameError

SCHEDULES = ("constant", "cosine", "linear", "warmup_cosine", "warmup_linear")

WARMUP_SHARE = 0.1
"""Share of all steps that the warm-up takes where nobody says how long it is."""


def default_warmup(name: str, total_steps: int) -> int:
    """Steps of warm-up of a schedule that nobody gave any: a tenth of all, rounded up, of one that has a warm-up."""
    if not name.startswith("warmup_"):
        return 0
    return min(math.ceil(WARMUP_SHARE * total_steps), total_steps - 1)


def multiplier(name: str, step: int, total_steps: int, warmup_steps: int = 0) -> float:
    """Factor of the peak learning rate at step s (from 0) of T.

    `linear` 1 - s/T; `cosine` (1 + cos(πs/T)) / 2; `warmup_*` s/warmup while s < warmup, then the decay of that name
    over the remaining T - warmup steps. Past T it stays at its end.

    Raises:
        UnknownNameError: no schedule of that name.
        InputError: T is not positive; or the warm-up is negative, as long as the run, or not in the schedule.
    """
    if name not in SCHEDULES:
        raise UnknownNameError("learning rate schedule", name, SCHEDULES)
    if total_steps <= 0:
        raise InputError(f"total_steps is {total_steps}; a learning rate schedule needs at least one step")
    if not 0 <= warmup_steps < total_steps:
        raise InputError(f"warmup_steps is {warmup_steps}; it must be at least 0 and less than the {total_steps} steps")
    if warmup_steps and not name.startswith("warmup_"):
        raise InputError(f"schedule {name!r} has no warm-up; set warmup_steps=0, or use warmup_linear or warmup_cosine")
    if step < warmup_steps:
        return step / warmup_steps
    progress = min((step - warmup_steps) / (total_steps - warmup_steps), 1.0)
    match name.removeprefix("warmup_"):
        case "linear":
            return 1.0 - progress
        case "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
        case _:
            return 1.0
