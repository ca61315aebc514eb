"""Batch size of a run: as published, unless its data are too few for that."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import chz

from cookhouse.algorithms.stages.state import RunContext
from cookhouse.runs.folder.choice import BY_DATA
from cookhouse.settings.defaults import Default, has_default, is_left_open
from cookhouse.settings.published import is_embedded, published_model_of
from cookhouse.telemetry import ResultNote

ENOUGH_STEPS = 30
"""So many steps a run is to have before a published batch is left as it is."""
LEAST_BATCH = 4
FEW_STEPS = 10


C = TypeVar("C", bound=Any)


def fit_batch(context: RunContext, config: C, steps_of: Callable[[int], int], what: str) -> C:
    """The settings of a run with its batch size, which is also written into the record of the run.

    Where nobody named a batch or a number of steps, and the published batch gives fewer than 30 steps, it is the
    largest power of two, at least 4, that gives 30, or the one that comes nearest. That, and that there are few steps
    with a batch that somebody named, becomes a note.

    `steps_of` gives the steps of an epoch with a batch size, 0 where that is too small for the data; `what` is what
    there is, as "160 examples".
    """
    size: int = config.batch_size
    num_epochs = getattr(config, "num_epochs", 1)
    limits = [name for name in ("max_steps", "n_batches") if name in chz.chz_fields(config)]
    if not all(has_default(config, name) for name in limits):
        return config
    steps = num_epochs * steps_of(size)
    if not is_left_open(config, "batch_size"):
        if steps < FEW_STEPS and _is_named(config):
            more = "a smaller batch_size, or more num_epochs, gives more" if size > 1 else "more num_epochs give more"
            said = f"batch_size={size} makes {_steps(steps)} of {what}, which teach little; {more}"
            context.notes.append(ResultNote(said))
        return config
    if steps >= ENOUGH_STEPS or is_embedded(config) or published_model_of(type(config)) is None:
        return config
    smaller = [power for power in _powers_below(size) if steps_of(power) > steps_of(size)]
    enough = [power for power in smaller if num_epochs * steps_of(power) >= ENOUGH_STEPS]
    chosen = enough[0] if enough else smaller[-1] if smaller else size
    if chosen == size:
        return config
    said = (
        f"batch_size is {chosen}: the published {size} would make {_steps(steps)} of {what}, and this makes "
        f"{num_epochs * steps_of(chosen):,}; as published: batch_size={size}"
    )
    context.notes.append(ResultNote(said))
    folder = context.folder
    recorded = {**folder.config, "batch_size": chosen}
    context.folder = replace(folder, config=recorded, origins={**folder.origins, "batch_size": BY_DATA})
    fitted: C = chz.replace(config, batch_size=chosen)
    return fitted


def _is_named(config: Any) -> bool:
    """True if somebody named a batch, of those that are not left open: a plain default looks as if it were set."""
    is_computed = isinstance(chz.chz_fields(config)["batch_size"]._munger, Default)
    return is_computed or not has_default(config, "batch_size")


def _powers_below(size: int) -> list[int]:
    """Powers of two below a size and from 4 on, the largest first."""
    return [power for exponent in range(size.bit_length(), 1, -1) if LEAST_BATCH <= (power := 2**exponent) < size]


def _steps(count: int) -> str:
    return f"{count:,} step" + "s" * (count != 1)


def batches_of(num_items: int) -> Callable[[int], int]:
    """Batches that so many items make, by their size; what does not fill another makes a last, smaller one."""
    return lambda size: -(-num_items // size)
