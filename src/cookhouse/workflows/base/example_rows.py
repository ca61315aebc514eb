"""Datums of a step as people look at them: tokens, targets, and what was said of each target.

Legend: T positions of a datum, K targets at each where there are several.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count as count_from
from typing import Any

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.envs import evenly_spaced
from cookhouse.training import Answered
from cookhouse.training.loop.objective import Fields, FindLogprobs, answered_datums
from cookhouse.workflows.base.json_lines import shortened

MAX_TARGETS = 2048
"""Of an example that is longer a part is shown, from a little before what is trained on."""
_MAX_NUMBERS = 8 * MAX_TARGETS
_BEFORE = 256
_VALUES = {
    "weights": ("weights", "mask"),
    "advantages": ("advantages",),
    "sampler_logprobs": ("logprobs",),
    "teacher_logprobs": ("teacher_logprobs",),
}
"""What is shown, and which parts of a datum it may be, the first that is there."""


@dataclass(frozen=True, kw_only=True)
class AnsweredDatum:
    """A datum of a step, and what the service answered to it."""

    number: int
    """In the step, from 0."""
    label: str
    datum: tinker.Datum
    fields: Fields


def shown_datums(parts: Answered[Any], count: int) -> list[AnsweredDatum]:
    """The datums of at most `count` examples, spread evenly over a step. Of work that was trained on several times the
    first answer counts.
    """
    answered: dict[int, tuple[tinker.Datum, Fields]] = {}
    for datum, fields in answered_datums(parts):
        answered.setdefault(id(datum), (datum, fields))
    labels = next((work.labels for work, _ in parts if work.labels), ("",))
    found = list(answered.values())
    starts = evenly_spaced(range(0, len(found), len(labels)), count)
    return [
        AnsweredDatum(number=number, label=label, datum=datum, fields=fields)
        for start in starts
        for number, label, (datum, fields) in zip(count_from(start), labels, found[start:], strict=False)
    ]


def example_row(shown: AnsweredDatum, find_logprobs: FindLogprobs) -> dict[str, Any]:
    """Row to keep of a datum. Values stand in the shape of its targets; those that it does not have are left out."""
    inputs = shown.datum.loss_fn_inputs
    targets = inputs["target_tokens"].to_numpy()
    found = {
        name: next((inputs[part].to_numpy() for part in parts if part in inputs), None)
        for name, parts in _VALUES.items()
    } | {"logprobs": find_logprobs(shown.datum, shown.fields)}
    values = {
        name: array.reshape(targets.shape)
        for name, array in found.items()
        if array is not None and array.size == targets.size
    }
    part = _part_shown(targets, values.get("weights"))
    return {
        "number": shown.number,
        "label": shown.label,
        "num_before": part.start,
        "num_after": len(targets) - part.stop,
        "tokens": _tokens(shown.datum.model_input)[part],
        "targets": targets[part].tolist(),
        **{name: shortened(array[part]).tolist() for name, array in values.items()},
    }


def _part_shown(targets: NDArray[Any], weights: NDArray[Any] | None) -> slice:
    num_targets, width = len(targets), int(np.prod(targets.shape[1:]))
    count = min(num_targets, MAX_TARGETS, max(1, _MAX_NUMBERS // max(width, 1)))
    trained = np.zeros(0) if weights is None else np.flatnonzero(weights.reshape(num_targets, -1).any(axis=1))
    first = int(trained[0]) if trained.size else 0
    start = min(max(0, first - min(_BEFORE, count // 2)), num_targets - count)
    return slice(start, start + count)


def _tokens(model_input: tinker.ModelInput) -> list[int | None]:
    """The inputs; None where an image stands."""
    return [token for chunk in model_input.chunks for token in _of_chunk(chunk)]


def _of_chunk(chunk: Any) -> Sequence[int | None] | Iterator[None]:
    return list(chunk.tokens) if isinstance(chunk, tinker.EncodedTextChunk) else [None] * chunk.length
