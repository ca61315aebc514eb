"""The last value of a metric over a setting that was swept, drawn as SVG: a line for each choice of the others."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from cookhouse.errors import printable
from cookhouse.report.charts import Chart
from cookhouse.report.drawing import series_style
from cookhouse.report.scale import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH, Scale, upward_scale
from cookhouse.report.sweep import SweepRow, SweepTable
from cookhouse.telemetry import Metric

AddressOf: TypeAlias = Callable[[SweepRow], str | None]

_DECADE = 10
_LABEL_PIXELS = 34
_MAX_CHARACTERS = 12


def setting_charts(table: SweepTable, address_of: AddressOf = lambda _: None) -> list[Chart]:
    """A chart of each setting that was swept; of some runs a point leads to an address."""
    return [
        Chart(
            name=f"{table.metric.name} over {setting}",
            svg=svg,
            caption=" (logarithmic axis)" if is_log([row.settings[setting] for row in table.rows]) else "",
            legend=setting_legend(table, setting),
        )
        for setting in table.swept
        if table.metric is not None and (svg := setting_svg(table, setting, address_of))
    ]


def setting_svg(table: SweepTable, setting: str, address_of: AddressOf = lambda _: None) -> str:
    """The metric of the runs that have a finite value of it, each with its standard error; empty if these have only one
    value of the setting.

    The axis is logarithmic where positive numbers span a decade or more; others stand in the order given.
    """
    rows = _drawn(table, setting)
    values = list(dict.fromkeys(row.settings[setting] for row in rows))
    if len(values) < 2 or table.metric is None:
        return ""
    place = _places(values)
    ends = [place(value) for value in values]
    across = Scale(min(ends), max(ends), LEFT + 10, WIDTH - RIGHT - 10)
    heights = [end for row in rows for end in _ends(table.metric, row)]
    upward = upward_scale(table.metric, min(heights), max(heights))

    def x(value: Any) -> float:
        return across.pixel(place(value))

    name = escape(printable(f"{table.metric.name} over {setting}"))
    return "".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">',
            *_grid(upward),
            *_labels(sorted(values, key=place), x),
            *_lines(table, table.metric, setting, rows, x, upward, address_of),
            "</svg>",
        ]
    )


def setting_legend(table: SweepTable, setting: str) -> list[tuple[str, str]]:
    """Classes of each line of `setting_svg`, and the choice of the other settings that it is of; empty of one line."""
    choices = _alike(setting, _drawn(table, setting))
    return [(series_style(index), choice) for index, choice in enumerate(choices)] if len(choices) > 1 else []


def is_log(values: Sequence[Any]) -> bool:
    """True if an axis of these values is logarithmic."""
    return all(map(_is_number, values)) and min(values) > 0 and max(values) >= _DECADE * min(values)


def _places(values: Sequence[Any]) -> Callable[[Any], float]:
    if is_log(values):
        return math.log10
    if all(map(_is_number, values)):
        return float
    order = {value: float(index) for index, value in enumerate(values)}
    return order.__getitem__


def _grid(upward: Scale) -> Iterator[str]:
    for value, label in upward.ticks():
        y = upward.pixel(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _labels(values: Sequence[Any], x: Callable[[Any], float]) -> Iterator[str]:
    """The values themselves, but for those that have no room next to the one before."""
    end = -math.inf
    for value in values:
        at = x(value)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        if at - end >= _LABEL_PIXELS:
            end = at
            label = escape(printable(_text(value)))
            yield f'<text x="{at:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{label}</text>'


def _lines(
    table: SweepTable,
    metric: Metric,
    setting: str,
    rows: Sequence[SweepRow],
    x: Callable[[Any], float],
    upward: Scale,
    address_of: AddressOf,
) -> Iterator[str]:
    for index, (choice, some) in enumerate(_alike(setting, rows).items()):
        ordered = sorted(some, key=lambda row: x(row.settings[setting]))
        places = [(row, x(row.settings[setting]), upward.pixel(row.value or 0.0)) for row in ordered]
        points = " ".join(f"{across:.1f},{up:.1f}" for _, across, up in places)
        yield f'<g class="{series_style(index)}"><polyline class="line" points="{points}"/>'
        for row, across, up in places:
            of = f"{choice}, " if choice else ""
            title = f"{of}{setting}={_text(row.settings[setting])}: {table.text(row)}{' ★' * row.is_best}"
            if row.stderr:
                low, high = map(upward.pixel, _ends(metric, row))
                yield f'<line class="error" x1="{across:.1f}" x2="{across:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
            dot = f'<circle class="dot" cx="{across:.1f}" cy="{up:.1f}" r="{5 if row.is_best else 3}"><title>'
            yield _led(address_of(row), f"{dot}{escape(printable(title))}</title></circle>")
        yield "</g>"


def _ends(metric: Metric, row: SweepRow) -> tuple[float, float]:
    """A standard error below and above a finite value; of a share, as far as it can lie there."""
    value, error = row.value or 0.0, row.stderr or 0.0
    low, high = value - error, value + error
    is_share = metric.is_share and 0.0 <= value <= 1.0
    return (max(0.0, low), min(1.0, high)) if is_share else (low, high)


def _led(address: str | None, shape: str) -> str:
    return shape if address is None else f'<a href="{escape(address)}">{shape}</a>'


def _drawn(table: SweepTable, setting: str) -> list[SweepRow]:
    return [
        row
        for row in table.rows
        if row.value is not None and math.isfinite(row.value) and _can_be_key(row.settings[setting])
    ]


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
