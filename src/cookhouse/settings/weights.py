"""Which settings name weights, and which weights they name."""

from collections.abc import Callable, Mapping
from typing import Any

from cookhouse.naming import names_in

WEIGHTS_FIELDS = (
    "weights",
    "load_checkpoint_path",
    "kl_reference",
    "reference_model",
    "answerer_model",
    "opponent_model",
    "preference_model",
    "teacher_model",
)
"""Settings that may name weights; of `teacher_model` there may be several, separated by commas."""


def weights_in(settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """What settings name as weights or as another model, by setting."""
    given = {field: settings.get(field) for field in WEIGHTS_FIELDS}
    return {
        field: list(names_in(value)) if field == "teacher_model" else [value]
        for field, value in given.items()
        if isinstance(value, str)
    }


def with_weights(field: str, value: str, rename: Callable[[str], str]) -> str:
    """The value of one of `WEIGHTS_FIELDS` in which every name is another."""
    return ",".join(rename(name) for name in weights_in({field: value})[field])
