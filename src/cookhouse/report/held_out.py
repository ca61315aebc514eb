"""The table of what was measured on held-out data: a row for each metric, with its standard error and its n."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cookhouse.report.curves import Curve, Point
from cookhouse.telemetry import COMPANIONS, is_held_out

_STDERR, _N = "_stderr", "_n"


@dataclass(frozen=True, kw_only=True)
class HeldOutTable:
    """Texts under their header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def held_out_table(curves: Sequence[Curve]) -> HeldOutTable | None:
    """The first, the best and the last value of each metric under `test/`, and how far it is from the first to the
    last; of a single evaluation, its values. None if nothing was measured.
    """
    tested = {curve.name: curve for curve in curves if is_held_out(curve.name) and curve.points}
    rows = [curve for curve in tested.values() if not _is_told_beside(curve.name, tested)]
    rows.sort(key=lambda curve: curve.metric.chart is None)
    if not rows:
        return None
    is_single = len({point.step for curve in rows for point in curve.points}) == 1
    cells = {
        curve.name: [_at(curve, tested, curve.points[-1])] if is_single else _over_steps(curve, tested)
        for curve in rows
    }
    header = ["metric", *(["value"] if is_single else ["first", "best", "last", "difference"])]
    ns = {curve.name: _companion(curve.name + _N, tested, curve.points[-1].step) for curve in rows}
    if all(n is None for n in ns.values()):
        return HeldOutTable(header=header, rows=[[name, *some] for name, some in cells.items()])
    counted = [[name, *some, "-" if (n := ns[name]) is None else f"{n:,.0f}"] for name, some in cells.items()]
    return HeldOutTable(header=[*header, "n"], rows=counted)


def _over_steps(curve: Curve, tested: Mapping[str, Curve]) -> list[str]:
    first, last = curve.points[0], curve.points[-1]
    is_measured_twice = len(curve.points) > 1 and not curve.name.endswith(COMPANIONS)
    difference = curve.metric.difference_text(first.value, last.value) if is_measured_twice else "-"
    shown = [
        f"{_at(curve, tested, point)} (step {point.step})" if point else "-" for point in (first, curve.best, last)
    ]
    return [*shown, difference]


def _at(curve: Curve, tested: Mapping[str, Curve], point: Point) -> str:
    value = curve.metric.text(point.value)
    stderr = _companion(curve.name + _STDERR, tested, point.step)
    return value if stderr is None else f"{value} ± {curve.metric.error_text(stderr)}"


def _is_told_beside(name: str, tested: Mapping[str, Curve]) -> bool:
    return any(name.endswith(end) and name.removesuffix(end) in tested for end in (_STDERR, _N))


def _companion(name: str, tested: Mapping[str, Curve], step: int) -> float | None:
    points = tested[name].points if name in tested else []
    return next((point.value for point in points if point.step == step), None)
