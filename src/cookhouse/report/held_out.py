"""The table of what was measured on held-out data: a row for each metric, with its interval or standard error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cookhouse.report.curves import Curve, Point
from cookhouse.telemetry import COMPANIONS, after_step, is_held_out, measured_text

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
    return HeldOutTable(header=header, rows=[[name, *some] for name, some in cells.items()])


def _over_steps(curve: Curve, tested: Mapping[str, Curve]) -> list[str]:
    first, last = curve.points[0], curve.points[-1]
    is_measured_twice = len(curve.points) > 1 and not curve.name.endswith(COMPANIONS)
    difference = curve.metric.difference_text(first.value, last.value) if is_measured_twice else "-"
    points = (first, curve.best, last)
    shown = [f"{_at(curve, tested, point)} ({after_step(point.step)})" if point else "-" for point in points]
    return [*shown, difference]


def _at(curve: Curve, tested: Mapping[str, Curve], point: Point) -> str:
    stderr, n = (_companion(curve.name + end, tested, point.step) for end in (_STDERR, _N))
    return measured_text(curve.metric, point.value, stderr, n)


def _is_told_beside(name: str, tested: Mapping[str, Curve]) -> bool:
    return any(name.endswith(end) and name.removesuffix(end) in tested for end in (_STDERR, _N))


def _companion(name: str, tested: Mapping[str, Curve], step: int) -> float | None:
    points = tested[name].points if name in tested else []
    return next((point.value for point in points if point.step == step), None)
