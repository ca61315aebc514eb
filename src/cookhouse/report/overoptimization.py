"""Overoptimization: the score of a preference model goes on rising while a rule that nobody trains on falls."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.report.charts import Chart, Series, chart_data
from cookhouse.report.columns import curves_of
from cookhouse.telemetry import keys, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of both for the held-out answers of one evaluation, in [0, 1]."""

    step: int
    model: float
    """Mean win share against the answers of the data."""
    rule: float
    model_stderr: float
    rule_stderr: float
    """Standard errors; 0 where they are not known."""
    agreement: float | None
    """Share of the answers that both find good, or neither."""


def scores_of(rows: Sequence[Mapping[str, Any]]) -> list[Scores]:
    """Of the evaluations that have both, in order of their steps; rows of one step count as one."""
    by_step: dict[int, dict[str, Any]] = {}
    for row in rows:
        by_step.setdefault(row["step"], {}).update(row)
    return [
        Scores(
            step=step,
            model=row[keys.TEST_WIN_SHARE],
            rule=row[keys.TEST_RULE],
            model_stderr=row.get(f"{keys.TEST_WIN_SHARE}_stderr", 0.0),
            rule_stderr=row.get(f"{keys.TEST_RULE}_stderr", 0.0),
            agreement=row.get(keys.TEST_AGREEMENT),
        )
        for step, row in sorted(by_step.items())
        if keys.TEST_WIN_SHARE in row and keys.TEST_RULE in row
    ]


def overoptimization_of(scores: Sequence[Scores]) -> tuple[Scores, Scores] | None:
    """The evaluation at which the rule's share is highest, and the first after it at which the rule's has fallen while
    the model's has not, each by more than two standard errors of the difference; None: they do not part.
    """
    if not scores:
        return None
    peak = max(scores, key=lambda each: each.rule)
    for later in scores:
        has_rule_fallen = peak.rule - later.rule > 2 * math.hypot(peak.rule_stderr, later.rule_stderr)
        has_model_fallen = peak.model - later.model > 2 * math.hypot(peak.model_stderr, later.model_stderr)
        if later.step > peak.step and has_rule_fallen and not has_model_fallen:
            return peak, later
    return None


def overoptimization_line(scores: Sequence[Scores]) -> str:
    """A sentence on whether both part, and where, and how far they agree in the end. Of one evaluation or more."""
    first, last = scores[0], scores[-1]
    parted = overoptimization_of(scores)
    if parted is None:
        said = (
            f"From step {first.step} to {last.step} the preference model's win share goes from {number(first.model)} "
            f"to {number(last.model)} and the rule's from {number(first.rule)} to {number(last.rule)}: they do not "
            "part."
        )
    else:
        peak, later = parted
        said = (
            f"They part after step {peak.step}, where the rule's share is highest: by step {later.step} it falls from "
            f"{number(peak.rule)} to {number(later.rule)}, and the preference model's win share goes from "
            f"{number(peak.model)} to {number(later.model)}. What comes after step {peak.step} pleases the model alone."
        )
    if last.agreement is None:
        return said
    return f"{said} At step {last.step} they agree on {last.agreement:.0%} of the held-out answers."


def overoptimization_remark(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The sentence of a run's metrics; None where it has not measured both more than once."""
    scores = scores_of(rows)
    return overoptimization_line(scores) if len(scores) > 1 else None


def overoptimization_chart(rows: Sequence[Mapping[str, Any]], steps: tuple[int, int]) -> Chart | None:
    """Both over the steps, with the sentence; None where a run has not measured both."""
    scores = scores_of(rows)
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
