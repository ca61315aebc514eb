"""The declared metrics: cookhouse's, and a user's own."""

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import get_args

from cookhouse.errors import InputError
from cookhouse.telemetry.keys import BUILT_IN
from cookhouse.telemetry.metric import COMPANIONS, Direction, Metric

_OWN: dict[str, Metric] = {}
_LINE = re.compile(r"|[^{}]*\{:\+?,?(\.\d)?[feg%]\}[^{}]*")


def declare_metric(metric: Metric) -> str:
    """Say what a metric is, for the rest of this process, and get its name. Runs that write it keep what was said.

    Said again of the same name, the last holds, also of one of cookhouse's.

    Raises:
        InputError: a field is none that a metric can have.
    """
    check_metric(metric)
    _OWN[metric.name] = metric
    return metric.name


def declared_of(names: Iterable[str]) -> list[Metric]:
    """What was declared in this process of some metrics by their whole names."""
    found = {declared: _OWN.get(_family(declared)) for name in names for _, declared, _ in _splits(name)}
    return list({metric.name: metric for metric in found.values() if metric is not None}.values())


def check_metric(metric: Metric) -> None:
    """Raises `InputError` for a field that a metric cannot have."""
    wanted = {
        "name": (isinstance(metric.name, str) and all(metric.name.split("/")), "text, in parts between slashes"),
        "direction": (metric.direction in (None, *get_args(Direction)), "less, more or None"),
        "is_share": (isinstance(metric.is_share, bool), "True or False"),
        "label": (isinstance(metric.label, str), "text"),
        "chart": (_is_place(metric.chart), "a whole number, or None"),
        "headline": (_is_place(metric.headline), "a whole number, or None"),
        "line": (
            isinstance(metric.line, str) and bool(_LINE.fullmatch(metric.line)),
            "text with one format, as {:.4f}",
        ),
    }
    for field, (is_right, wants) in wanted.items():
        if not is_right:
            raise InputError(f"{field}={getattr(metric, field)!r} of metric {metric.name!r} must be {wants}")


def _is_place(place: object) -> bool:
    return place is None or (isinstance(place, int) and not isinstance(place, bool))


def find_metric(name: str, own: Mapping[str, Metric] | None = None) -> Metric:
    """What is known of a metric by its whole name.

    Of the declarations that fit, that counts whose name ends last in it, the longest of these, and one's own before
    cookhouse's. Figures about another metric (`COMPANIONS`) have no direction and no place.

    Args:
        name: as the metrics file has it.
        own: declared metrics besides those of cookhouse, by name; default: those of this process.
    """
    known = ChainMap({**(_OWN if own is None else own)}, BUILT_IN)
    end = next((end for end in COMPANIONS if name.endswith(end)), None)
    if end is not None and name not in known:
        is_share = end == "_stderr" and find_metric(name.removesuffix(end), own).is_share
        return Metric(name, is_share=is_share, label=_label(name))
    for before, declared, behind in _splits(name):
        if (found := known.get(_family(declared))) is not None:
            label = f"{_label(before)}{found.label or _label(declared)}{behind}"
            placed = found if not behind else replace(found, chart=None, headline=None, line="")
            return replace(placed, name=name, label=label)
    return Metric(name, label=_label(name))


def _splits(name: str) -> Iterator[tuple[str, str, str]]:
    """What may be declared of a name, with what stands before and behind it: what ends last first, then the longest."""
    parts = name.split("/")
    for end in range(len(parts), 0, -1):
        for start in range(end):
            yield (
                "".join(f"{part}/" for part in parts[:start]),
                "/".join(parts[start:end]),
                "".join(f"/{part}" for part in parts[end:]),
            )


def _family(name: str) -> str:
    """A name as it is declared: `pass@8` is one of `pass@K`."""
    return re.sub(r"@\d+(?=/|$)", "@K", name)


def _label(name: str) -> str:
    return name.removeprefix("test/")


def ranked(names: Iterable[str], own: Mapping[str, Metric] | None = None) -> list[str]:
    """Those of some metrics that tell of a run, the most telling one first."""
    known = {name: find_metric(name, own) for name in dict.fromkeys(names)}
    placed = sorted(
        (metric for metric in known.values() if metric.headline is not None), key=lambda metric: metric.headline or 0
    )
    tested = [metric.name for metric in placed if is_held_out(metric.name)]
    others = [name for name in known if is_held_out(name) and not name.endswith((*COMPANIONS, "_tokens"))]
    return list(dict.fromkeys((*tested, *others, *(metric.name for metric in placed))))


def is_held_out(name: str) -> bool:
    """Whether a metric was measured on held-out data."""
    return name.startswith("test/")
