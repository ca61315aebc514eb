"""Figures of judged comparisons."""

import math

import pytest

from cookhouse.chat import Comparison, Label
from cookhouse.data import ComparisonRow
from cookhouse.errors import InputError, ServiceError
from cookhouse.evals import JudgedComparison, comparison_metrics, judge_comparisons, note_comparisons, wilson_interval
from cookhouse.grading import Judgment
from cookhouse.telemetry import Recording, Scope, Table

pytestmark = pytest.mark.anyio


def row(number: int, label: Label) -> ComparisonRow:
    return ComparisonRow(
        prompt=[{"role": "user", "content": f"ask {number}"}],
        completion_a=[{"role": "assistant", "content": "first"}],
        completion_b=[{"role": "assistant", "content": "second"}],
        label=label,
        source=f"x:{number}",
    )


def judged(label: Label, a: float, b: float, tie: float = 0.0, *, disagree: bool = False) -> JudgedComparison:
    judgment = Judgment(a=a, b=b, tie=tie, position_bias=0.25, is_order_dependent=disagree)
    return JudgedComparison(row=row(1, label), judgment=judgment)


def test_figures_are_exact() -> None:
    # Catches B taken for A, a tie of probabilities that counts as right, and a tie that any label answers.
    found = comparison_metrics(
        [
            judged("A", 0.5, 0.25, 0.25),
            judged("B", 0.5, 0.25, 0.25, disagree=True),
            judged("A", 0.25, 0.25, 0.5),
            judged("Tie", 0.25, 0.25, 0.5),
        ]
    )
    assert (found["accuracy"], found["accuracy_n"]) == (2.5 / 4, 4.0)
    assert found["nll"] == pytest.approx((math.log(2) + math.log(4) + math.log(4) + math.log(2)) / 4)
    assert (found["order_disagreement"], found["position_bias"]) == (0.25, 0.25)
    assert (found["accuracy_low"], found["accuracy_high"]) == wilson_interval(2.5, 4)


async def test_a_comparison_that_fails_fails_all_and_nothing_to_judge_is_refused() -> None:
    async def failing(comparison: Comparison) -> Judgment:
        if comparison.prompt[0]["content"] == "ask 2":
            raise ServiceError("gone")
        return Judgment(a=1.0, b=0.0, tie=0.0, position_bias=0.0, is_order_dependent=False)

    assert (await judge_comparisons(failing, [row(1, "A")]))[0].correct == 1.0
    with pytest.raises(ServiceError, match="gone"):
        await judge_comparisons(failing, [row(1, "A"), row(2, "A")])
    with pytest.raises(InputError, match="no held-out comparisons"):
        await judge_comparisons(failing, [])


def test_answers_stand_side_by_side_with_their_probabilities_the_worst_first() -> None:
    recording = Recording()
    with recording.active():
        note_comparisons([judged("A", 0.9, 0.1), judged("B", 0.8, 0.2)])
    [scope] = recording.drain()
    assert isinstance(scope, Scope)
    [table] = scope.entries
    assert isinstance(table, Table)
    assert table.columns == ["prompt", "completion A", "completion B", "label", "P(A)", "P(B)", "P(Tie)", "orders"]
    assert [list(cells[3:6]) for cells in table.rows] == [["B", "0.800", "0.200"], ["A", "0.900", "0.100"]]
