"""Where a preference model and a rule part, in words."""

from collections.abc import Sequence
from typing import Any

import pytest

from cookhouse.diagnosis import MetricHistory, RunFacts, diagnose
from cookhouse.diagnosis.held_out import overoptimization_line, overoptimization_of, scores_of
from cookhouse.report.overoptimization import overoptimization_chart, overoptimization_remark


def rows(model: Sequence[float], rule: Sequence[float], stderr: float = 0.01) -> list[dict[str, Any]]:
    """Evaluations five steps apart."""
    return [
        {
            "step": 5 * index,
            "test/env/all/win_share": by_model,
            "test/env/all/win_share_stderr": stderr,
            "test/env/all/rule": by_rule,
            "test/env/all/rule_stderr": stderr,
            "test/env/all/agreement": 0.75,
        }
        for index, (by_model, by_rule) in enumerate(zip(model, rule, strict=True))
    ]


def test_they_part_where_the_rule_is_highest_before_it_falls_alone() -> None:
    scores = scores_of(MetricHistory(rows([0.5, 0.6, 0.7, 0.8], [0.4, 0.9, 0.8, 0.5])))
    parted = overoptimization_of(scores)
    assert parted is not None
    assert [each.step for each in parted] == [5, 10]
    assert overoptimization_line(scores) == (
        "They part after step 5, where the rule's share is highest: by step 10 it falls from 0.9 to 0.8, and the "
        "preference model's win share goes from 0.6 to 0.7. What comes after step 5 pleases the model alone. At step "
        "15 they agree on 75% of the held-out answers."
    )


@pytest.mark.parametrize(
    ("model", "rule", "stderr"),
    [
        ([0.5, 0.6, 0.7], [0.4, 0.8, 0.9], 0.01),  # both rise
        ([0.5, 0.7, 0.6], [0.4, 0.9, 0.5], 0.01),  # both fall
        ([0.5, 0.6, 0.7], [0.4, 0.9, 0.8], 0.05),  # the rule by less than chance gives
        ([0.5], [0.4], 0.01),
    ],
)
def test_going_together_or_by_chance_is_no_parting(
    model: Sequence[float], rule: Sequence[float], stderr: float
) -> None:
    scores = scores_of(MetricHistory(rows(model, rule, stderr)))
    assert overoptimization_of(scores) is None
    assert "they do not part" in overoptimization_line(scores)


def test_runs_that_did_not_measure_both_have_no_chart() -> None:
    assert overoptimization_chart([{"step": 0, "test/env/all/rule": 0.5}], (0, 1)) is None
    assert overoptimization_chart([], (0, 0)) is None


def test_the_chart_has_both_curves_and_the_sentence() -> None:
    chart = overoptimization_chart(rows([0.5, 0.6], [0.4, 0.9]), (0, 5))
    assert chart is not None
    assert chart.data is not None
    assert [line["label"] for line in chart.data["lines"]] == ["preference model", "rule"]
    assert chart.caption.startswith("From step 0 to 5 the preference model's win share goes from 0.5 to 0.6")


def test_the_summary_says_it_once() -> None:
    # Catches a run without a finding that says nothing of both, and one whose finding stands there a second time.
    together, parted = rows([0.5, 0.6, 0.7], [0.4, 0.8, 0.9]), rows([0.5, 0.6, 0.7], [0.4, 0.9, 0.8])
    assert (overoptimization_remark(together, []) or "").startswith(
        "From step 0 to 10 the preference model's win share"
    )
    findings = diagnose([*parted, {"step": 10, "optim/lr": 1e-3}], RunFacts())
    assert [finding.name for finding in findings] == ["overoptimization"]
    assert overoptimization_remark(parted, findings) is None
    assert (overoptimization_remark(parted, []) or "").startswith("They part after step 5")
    assert overoptimization_remark(together[:1], []) is None
