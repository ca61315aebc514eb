"""The last value of a metric over a setting that was swept: a line for each choice of the others."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from cookhouse.report.charts import Chart, series_style
from cookhouse.report.sweep import SweepRow, SweepTable

AddressOf: TypeAlias = Callable[[SweepRow], str | None]

_DECADE = 10
_MAX_CHARACTERS = 12


def setting_charts(table: SweepTable, address_of: AddressOf = lambda _: None) -> list[Chart]:
    """A chart of each setting of which the runs with a finite value have several; of some runs a point leads to an
    address. The axis is logarithmic where positive numbers span a decade or more; others stand in the order given.
    """
    charts = (_chart(table, setting, address_of) for setting in table.swept if table.metric is not None)
    return [chart for chart in charts if chart is not None]


def is_log(values: Sequence[Any]) -> bool:
    """True if an axis of these values is logarithmic."""
    return all(map(_is_number, values)) and min(values) > 0 and max(values) >= _DECADE * min(values)


def _chart(table: SweepTable, setting: str, address_of: AddressOf) -> Chart | None:
    rows = [
        row
        for row in table.rows
        if row.value is not None and math.isfinite(row.value) and _can_be_key(row.settings[setting])
    ]
    values = list(dict.fromkeys(row.settings[setting] for row in rows))
    if len(values) < 2 or table.metric is None:
        return None
    place = _places(values)
    name = f"{table.metric.name} over {setting}"
    ends = [place(value) for value in values]
    room = (max(ends) - min(ends)) / 20
    lines = [
        {
            "label": choice,
            "style": series_style(index),
            "is_dense": True,
            "points": [
                (place(row.settings[setting]), row.value, row.stderr, address_of(row))
                for row in sorted(some, key=lambda row: place(row.settings[setting]))
            ],
        }
        for index, (choice, some) in enumerate(_alike(setting, rows).items())
    ]
    data = {
        "name": name,
        "is_share": table.metric.is_share,
        "first": min(ends) - room,
        "last": max(ends) + room,
        "labels": sorted((place(value), _text(value)) for value in values),
        "lines": lines,
    }
    return Chart(name=name, caption="logarithmic axis" if is_log(values) else "", data=data)


def _places(values: Sequence[Any]) -> Callable[[Any], float]:
    if is_log(values):
        return math.log10
    if all(map(_is_number, values)):
        return float
    order = {value: float(index) for index, value in enumerate(values)}
    return order.__getitem__


def _alike(setting: str, rows: Sequence[SweepRow]) -> dict[str, list[SweepRow]]:
    """Runs that differ in nothing else, which a line joins, by their choice of the other settings."""
    alike: dict[str, list[SweepRow]] = {}
    for row in rows:
        others = {name: value for name, value in row.settings.items() if name != setting}
        alike.setdefault(_choice(others), []).append(row)
    return alike


def _choice(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _text(value: Any) -> str:
    text = f"{value:g}" if _is_number(value) else str(value)
    return text if len(text) <= _MAX_CHARACTERS else f"…{text[1 - _MAX_CHARACTERS :]}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _can_be_key(value: Any) -> bool:
    return value.__hash__ is not None
