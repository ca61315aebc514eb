"""The charts of several runs: each metric of one in the same scale as that of the others."""

from collections.abc import Callable, Mapping, Sequence

from cookhouse.report.charts import Chart, ChartGroup, Series, chart_data, grouped, is_charted
from cookhouse.report.columns import MetricColumns
from cookhouse.telemetry import Metric, find_metric

_FEW = 2
"""Values that the table of last values tells enough of."""


class ComparedCharts:
    """Of the metrics of several runs, as far as one of them has more than a few values."""

    def __init__(
        self,
        runs: Mapping[str, MetricColumns],
        own: Mapping[str, Metric],
        address_of: Callable[[str, str], str] = lambda _run, _metric: "",
    ) -> None:
        """`own` are the metrics that the runs declared; `address_of` is the beginning of the address of a point, by run
        and metric.
        """
        self._runs, self._own, self._address_of = runs, own, address_of
        ends = [columns.step_range() for columns in runs.values()] or [(0, 0)]
        self._steps = min(first for first, _ in ends), max(last for _, last in ends)

    def groups(self, *, whole: bool) -> Sequence[ChartGroup]:
        """The charts in their groups; unless `whole` without what is to draw."""
        names = sorted({name for columns in self._runs.values() for name in columns.names})
        charts = [self._made(find_metric(name, self._own), whole=whole) for name in names if self._is_charted(name)]
        return list(grouped(charts))

    def chart(self, name: str) -> Chart:
        """A metric over the steps of all."""
        metric = find_metric(name, self._own)
        curves = {
            run: columns.curve(name, self._own) for run, columns in self._runs.items() if columns.num_values(name)
        }
        several = [
            Series(curve=curves[run], label=run, color=color, address=self._address_of(run, name))
            for color, run in enumerate(self._runs)
            if run in curves and curves[run].points
        ]
        lacking = sum(curve.num_not_finite for curve in curves.values())
        return Chart(
            name=name,
            place=metric.chart,
            caption=f"{lacking:,} not finite" if lacking else "",
            data=chart_data(name, several, self._steps) if several else None,
        )

    def _made(self, metric: Metric, *, whole: bool) -> Chart:
        return self.chart(metric.name) if whole else Chart(name=metric.name, place=metric.chart)

    def _is_charted(self, name: str) -> bool:
        several = [columns for columns in self._runs.values() if columns.num_values(name)]
        if not is_charted(find_metric(name, self._own)):
            return False
        if any(columns.num_values(name) > _FEW for columns in several):
            return True
        return not any(columns.curve(name, self._own).points for columns in several)
