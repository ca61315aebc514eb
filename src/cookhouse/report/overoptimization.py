"""Chart of a preference model's score and of a rule that nobody trains on, over each other."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cookhouse.diagnosis import Finding, MetricHistory
from cookhouse.diagnosis.held_out import overoptimization_line, scores_of
from cookhouse.report.charts import Chart, Series, chart_data
from cookhouse.report.columns import curves_of
from cookhouse.telemetry import keys


def overoptimization_chart(rows: Sequence[Mapping[str, Any]], steps: tuple[int, int]) -> Chart | None:
    """Both over the steps, with the sentence; None where a run has not measured both."""
    scores = scores_of(MetricHistory(rows))
    if not scores:
        return None
    curves = {curve.name: curve for curve in curves_of(rows, own={})}
    named = {"preference model": keys.TEST_WIN_SHARE, "rule": keys.TEST_RULE}
    several = [
        Series(curve=curves[name], label=label, color=color)
        for color, (label, name) in enumerate(named.items())
        if curves[name].points
    ]
    if not several:
        return None
    name = "preference model and rule"
    return Chart(name=name, caption=overoptimization_line(scores), data=chart_data(name, several, steps))


def overoptimization_remark(rows: Iterable[Mapping[str, Any]], findings: Iterable[Finding]) -> str | None:
    """The sentence for the summary; None where a finding says it, or both were not measured more than once."""
    scores = scores_of(MetricHistory(rows))
    is_found = any(finding.name == "overoptimization" for finding in findings)
    return overoptimization_line(scores) if len(scores) > 1 and not is_found else None
