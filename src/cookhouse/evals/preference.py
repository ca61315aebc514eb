"""Held-out comparisons, judged by a preference model: how often it is right, and whether their order matters to it."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cookhouse.chat import Message, text_of
from cookhouse.data import ComparisonRow
from cookhouse.errors import InputError
from cookhouse.evals.evaluator import Metrics
from cookhouse.evals.scores import mean, standard_error
from cookhouse.grading import Judgment, PreferenceModel
from cookhouse.telemetry import scope, table, wilson_interval

_LEAST_PROBABILITY = 1e-12
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedComparison:
    """A held-out comparison and what a preference model said of it."""

    row: ComparisonRow
    judgment: Judgment

    @property
    def probability(self) -> float:
        """Of the right label."""
        return self._chances[self.row.label]

    @property
    def correct(self) -> float:
        """1 if the better answer has the higher probability, 1/2 if both have the same; a tie is to be the most
        probable label.
        """
        if self.row.label == "Tie":
            return float(self._chances["Tie"] == max(self._chances.values()))
        score = self.judgment.score if self.row.label == "A" else -self.judgment.score
        return 0.5 * (1 + (score > 0) - (score < 0))

    @property
    def _chances(self) -> Mapping[str, float]:
        return {"A": self.judgment.a, "B": self.judgment.b, "Tie": self.judgment.tie}


async def judge_comparisons(
    model: PreferenceModel, rows: Sequence[ComparisonRow], *, concurrency: int = 64
) -> list[JudgedComparison]:
    """Judge each row by a preference model, in their order. The first that fails ends the others.

    Raises:
        InputError: there are no rows.
    """
    if not rows:
        raise InputError("there are no held-out comparisons to judge")
    slots = asyncio.Semaphore(concurrency)

    async def judge(row: ComparisonRow) -> JudgedComparison:
        async with slots:
            return JudgedComparison(row=row, judgment=await model(row))

    try:
        async with asyncio.TaskGroup() as tasks:
            judging = [tasks.create_task(judge(row)) for row in rows]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in judging]


def comparison_metrics(judged: Sequence[JudgedComparison]) -> Metrics:
    """`accuracy`, its `_stderr`, `_n`, and `accuracy_low` and `accuracy_high`, Wilson's 95% interval; `nll`, the mean
    −log of the right label's probability; `order_disagreement`, the share whose two orders name different winners; and
    `position_bias`, what standing first adds to a score, in [−1, 1].
    """
    correct = [each.correct for each in judged]
    low, high = wilson_interval(sum(correct), len(correct)) if correct else (None, None)
    return {
        "accuracy": mean(correct),
        "accuracy_stderr": standard_error(correct),
        "accuracy_n": float(len(correct)),
        "accuracy_low": low,
        "accuracy_high": high,
        "nll": mean([-math.log(max(each.probability, _LEAST_PROBABILITY)) for each in judged]),
        "order_disagreement": mean([float(each.judgment.is_order_dependent) for each in judged]),
        "position_bias": mean([each.judgment.position_bias for each in judged]),
    }


def note_comparisons(judged: Sequence[JudgedComparison]) -> None:
    """Note the answers side by side, with what the model gives each of them; those that it gets wrong come first."""
    ordered = sorted(judged, key=lambda each: (each.correct, each.probability))
    with scope(f"{len(judged)} held-out comparisons, the least probable first"):
        table(
            [
                {
                    "prompt": text_of(each.row.prompt[-1]),
                    "completion A": _text(each.row.completion_a),
                    "completion B": _text(each.row.completion_b),
                    "label": each.row.label,
                    "P(A)": f"{each.judgment.a:.3f}",
                    "P(B)": f"{each.judgment.b:.3f}",
                    "P(Tie)": f"{each.judgment.tie:.3f}",
                    "orders": "disagree" if each.judgment.is_order_dependent else "agree",
                }
                for each in ordered[:_MAX_SHOWN]
            ]
        )


def _text(said: Sequence[Message]) -> str:
    return "\n".join(text_of(message) for message in said)
