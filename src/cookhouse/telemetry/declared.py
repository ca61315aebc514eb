"""The declared metrics: cookhouse's, and a user's own."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from cookhouse.callables.arguments import checked
from cookhouse.errors import InputError
from cookhouse.telemetry.keys import BUILT_IN
from cookhouse.telemetry.metric import CHOSEN, COMPANIONS, Direction, Metric

_OWN: dict[str, Metric] = {}
_LINE = re.compile(r"|[^{}]*\{:\+?,?(\.\d)?[feg%]\}[^{}]*")


@checked
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
    """Declarations made in this process of some metrics by their whole names."""
    parts = [name.split("/") for name in names]
    ends = ((some, end) for some in parts for end in range(1, len(some) + 1))
    found = [fitting[0] for some, end in ends if (fitting := _ending(some[:end], [_OWN])) is not None]
    return list(dict.fromkeys(found))


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
    """Declaration of a metric by its whole name.

    Of the declarations that fit, that counts which ends last in the name; of these one's own before cookhouse's, and
    then the longest. Figures about another metric (`COMPANIONS`) that nobody declared have no direction and no place.

    Args:
        name: as the metrics file has it.
        own: declared metrics besides those of cookhouse, by name; default: those of this process.
    """
    tables = (_OWN if own is None else own, BUILT_IN)
    parts = name.split("/")
    companion = next((end for end in COMPANIONS if name.endswith(end)), None)
    if companion is not None and _ending(parts, tables) is None:
        is_share = companion == "_stderr" and find_metric(name.removesuffix(companion), own).is_share
        return Metric(name, is_share=is_share, label=_label(name))
    for end in range(len(parts), 0, -1):
        if (fitting := _ending(parts[:end], tables)) is not None:
            found, start = fitting
            label = "/".join([*parts[:start], found.label or "/".join(parts[start:end]), *parts[end:]])
            placed = found if end == len(parts) else replace(found, chart=None, headline=None, line="")
            return replace(placed, name=name, label=_label(label))
    return Metric(name, label=_label(name))


def _ending(parts: Sequence[str], tables: Iterable[Mapping[str, Metric]]) -> tuple[Metric, int] | None:
    """The metric that is declared for the end of a name, and with which part that begins."""
    for table in tables:
        for start in range(len(parts)):
            if (found := table.get(_family("/".join(parts[start:])))) is not None:
                return found, start
    return None


def _family(name: str) -> str:
    """A name as it is declared: `pass@8` is one of `pass@K`."""
    return re.sub(r"@\d+(?=/|$)", "@K", name)


def _label(name: str) -> str:
    return name.removeprefix("test/")


def ranked(names: Iterable[str], own: Mapping[str, Metric] | None = None) -> list[str]:
    """The ones of some metrics that describe a run, the most telling one first."""
    known = {name: find_metric(name, own) for name in dict.fromkeys(names)}
    placed = sorted(
        (metric for metric in known.values() if metric.headline is not None), key=lambda metric: metric.headline or 0
    )
    chosen = [metric.name for metric in placed if metric.headline == CHOSEN]
    tested = [metric.name for metric in placed if is_held_out(metric.name)]
    others = [name for name in known if is_held_out(name) and not name.endswith((*COMPANIONS, "_tokens"))]
    return list(dict.fromkeys((*chosen, *tested, *others, *(metric.name for metric in placed))))


def is_held_out(name: str) -> bool:
    """True if a metric was measured on held-out data."""
    return name.startswith("test/")
