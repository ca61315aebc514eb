"""The charts of one run: those that decide, with training and held-out data in one, then the others by their names."""

from collections.abc import Callable, Mapping, Sequence

from cookhouse.report.charts import Chart, ChartGroup, Series, chart_data, grouped, is_charted, is_drawn
from cookhouse.report.columns import MetricColumns
from cookhouse.report.curves import Curve, Point
from cookhouse.telemetry import Metric, after_step, find_metric, is_held_out, keys, measured_text

AddressOf = Callable[[str], str]
"""Beginning of a point's address, by the name of its metric."""
NUM_DECIDING = 3
"""Above all others: of what is better one way, where two such are measured."""
_FEW = 2
"""Values that numbers tell enough of."""
_LOSSES = (keys.TRAIN_LOSS, "train/nll", keys.TEST_NLL)


class RunCharts:
    """Of the metrics of a run, as far as they are there."""

    def __init__(self, columns: MetricColumns, own: Mapping[str, Metric], address_of: AddressOf = lambda _: "") -> None:
        """`own` are the metrics that the run declared."""
        self._columns, self._own, self._address_of = columns, own, address_of
        self._steps = columns.step_range()
        names = [name for name in columns.names if self._is_charted(name)]
        placed = {name: find_metric(name, own).chart for name in names}
        above = sorted((name for name in names if placed[name] is not None), key=lambda name: placed[name] or 0)
        measures: dict[str, list[str]] = {}
        for name in above or [name for name in names if columns.num_values(name) > _FEW]:
            measures.setdefault(_measure(name), []).append(name)
        moving = [some for some in measures.values() if any(columns.constant(name) is None for name in some)]
        directed = [some for some in moving if any(find_metric(name, own).direction for name in some)]
        chosen = directed if len(directed) > 1 else moving
        self._measures = {_first(some): some for some in chosen[:NUM_DECIDING]}
        told = {name for some in self._measures.values() for name in some}
        self._others = {name: placed[name] for name in names if name not in told}

    def deciding(self, *, whole: bool) -> list[Chart]:
        """The first of all; unless `whole` without what is to draw."""
        return [self.chart(name) if whole else Chart(name=name) for name in self._measures]

    def others(self, *, whole: bool) -> list[ChartGroup]:
        """The others in their groups; unless `whole` without what is to draw."""
        return list(grouped([self._other(name, whole=whole) for name in self._others]))

    def _other(self, name: str, *, whole: bool) -> Chart:
        constant = self._columns.constant(name)
        if constant is not None:
            metric = find_metric(name, self._own)
            return Chart(name=name, place=metric.chart, constant=metric.text(constant))
        return self.chart(name) if whole else Chart(name=name, place=self._others[name])

    def chart(self, name: str) -> Chart:
        """The chart by that name."""
        names = self._measures.get(name, [name])
        curves = [self._columns.curve(each, self._own) for each in names]
        shown = [curve for curve in curves if curve.points]
        several = [self._series(curve, label="" if len(shown) == 1 else _label(curve.name)) for curve in shown]
        is_line = any(map(is_drawn, shown))
        change, difference = ("", "") if is_line or not shown else _in_numbers(shown[-1])
        return Chart(
            name=name,
            title=_title(names, self._own) if name in self._measures else "",
            names=names,
            place=find_metric(name, self._own).chart,
            caption=_caption(curves[0]) if len(curves) == 1 else " · ".join(map(self._end, shown)),
            data=chart_data(name, several, self._steps) if is_line else None,
            change=change,
            difference=difference,
        )

    def _end(self, curve: Curve) -> str:
        last = curve.points[-1]
        n = self._columns.value_at(f"{curve.name}_n", last.step) if is_held_out(curve.name) else None
        text = measured_text(curve.metric, last.value, self._errors(curve.name).get(last.step), n)
        return f"{_label(curve.name)} last {text} ({_when(curve, last)})"

    def _errors(self, name: str) -> Mapping[int, float]:
        return self._columns.by_step(f"{name}_stderr") if is_held_out(name) else {}

    def _series(self, curve: Curve, *, label: str) -> Series:
        is_test = is_held_out(curve.name)
        return Series(
            curve=curve,
            label=label,
            color=int(is_test),
            address=self._address_of(curve.name),
            errors=self._errors(curve.name),
        )

    def _is_charted(self, name: str) -> bool:
        """What the table of held-out metrics says whole is among the charts only if it tells most."""
        metric = find_metric(name, self._own)
        if not is_held_out(name) or metric.chart is not None:
            return is_charted(metric)
        curve = self._columns.curve(name, self._own)
        return is_charted(metric) and (is_drawn(curve) or not curve.points)


def _measure(name: str) -> str:
    """What a metric measures, of training and of held-out data alike."""
    return "loss" if name in _LOSSES else name.removeprefix("test/").removeprefix("train/")


def _first(names: Sequence[str]) -> str:
    """The one of training, where there is one."""
    return next((name for name in names if not is_held_out(name)), names[0])


def _label(name: str) -> str:
    return "held out" if is_held_out(name) else "training"


def _title(names: Sequence[str], own: Mapping[str, Metric]) -> str:
    labels = [find_metric(name, own).label for name in names]
    label = next((label for label in reversed(labels) if label not in names), "")
    return label.removeprefix("held-out ").removesuffix(" in training").removeprefix("training ")


def _in_numbers(curve: Curve) -> tuple[str, str]:
    """A curve of at most two points, and the difference between these."""
    first, last = curve.points[0].value, curve.points[-1].value
    whole = len(curve.points) == 2
    difference = curve.metric.difference_text(first, last) if whole else ""
    return curve.metric.change_text(first if whole else None, last), difference


def _caption(curve: Curve) -> str:
    gaps = [f"{curve.num_not_finite:,} not finite"] if curve.num_not_finite else []
    if not curve.points:
        return "".join(gaps)
    if not is_drawn(curve):
        steps = " and ".join(str(point.step) for point in curve.points)
        return " · ".join([f"step{'s' * (len(curve.points) > 1)} {steps}", *gaps])
    ends = {"last": curve.points[-1], "min": curve.lowest, "max": curve.highest}
    return " · ".join([*(f"{name} {_at(curve, point)}" for name, point in ends.items()), *gaps])


def _at(curve: Curve, point: Point) -> str:
    return f"{curve.metric.text(point.value)} ({_when(curve, point)})"


def _when(curve: Curve, point: Point) -> str:
    return after_step(point.step) if is_held_out(curve.name) else f"step {point.step}"
