"""What a run noted of its rollouts, as far as a page shows it: logs, entries, metrics and failures."""

from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.errors import InputError
from cookhouse.runs.reading.skeleton import FarNumbers, FarText, read_numbers, read_text
from cookhouse.telemetry import entries_from_json, entries_to_json

_LOG_CHARACTERS = 4000


def noted_of(values: Sequence[Any]) -> list[dict[str, Any]]:
    """What a run noted, as far as a page shows it."""
    try:
        return entries_to_json(entries_from_json([_near(value) for value in values]))
    except (InputError, RecursionError) as error:
        return [{"note": f"what was noted here cannot be read: {error}"}]


def _near(value: Any) -> Any:
    """With what was left in the file."""
    if isinstance(value, FarText):
        return log_text(value)
    if isinstance(value, FarNumbers):
        return read_numbers(value, 0, 100)
    if isinstance(value, dict):
        return {name: _near(each) for name, each in value.items()}
    return [_near(each) for each in value] if isinstance(value, list) else value


def log_text(text: str | FarText) -> str:
    """The beginning of a log, which says what was left out."""
    shown, left_out = read_text(text, _LOG_CHARACTERS)
    return f"{shown}… ({left_out:,} more bytes)" if left_out else shown


def numbers_of(values: Mapping[str, float]) -> dict[str, str]:
    """Metrics in words."""
    return {name: f"{value:.4g}" for name, value in values.items()}


def failure_text(failure: Mapping[str, Any]) -> str:
    """Who failed, and why."""
    who, attempt, origin, outcome, reason = (
        _near(failure.get(name, "")) for name in ("member", "attempt", "origin", "outcome", "reason")
    )
    return f"member {who}, attempt {attempt}, {origin}, {outcome}: {reason}"
