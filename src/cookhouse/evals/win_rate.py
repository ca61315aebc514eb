"""Win rate of answers against others to the same prompts, as a preference model compares them in both orders."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from cookhouse.chat import Message, text_of
from cookhouse.errors import InputError
from cookhouse.evals.evaluator import Metrics
from cookhouse.evals.scores import mean
from cookhouse.grading import Judgment, PreferenceModel, compare_texts
from cookhouse.telemetry import scope, table, wilson_interval

_MAX_SHOWN = 200

Verdict = Literal["wins", "draws", "loses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalAnswers:
    """An answer to a prompt, and others to it by the names of whom they are of."""

    prompt: Sequence[Message]
    answer: str
    others: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """Judgment of a preference model on an answer against the others, by their names."""

    rivals: RivalAnswers
    judgments: Mapping[str, Judgment]
    """Of the answer as A and the other as B; empty where the comparison cannot be put to the model."""
    reason: str | None = None
    """Why it cannot."""

    def verdict(self, name: str) -> Verdict | None:
        """Against one of the others; None: it was not compared."""
        judgment = self.judgments.get(name)
        if judgment is None:
            return None
        return "wins" if judgment.score > 0 else "loses" if judgment.score < 0 else "draws"


async def judge_answers(model: PreferenceModel, asked: Sequence[RivalAnswers]) -> list[JudgedAnswer]:
    """Judge each answer, in their order. One whose comparison the model cannot take, as it is too long, is
    left without a judgment; what fails otherwise ends the others.

    Raises:
        InputError: the model can take none of them.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            judging = [tasks.create_task(_judge(model, each)) for each in asked]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    judged = [task.result() for task in judging]
    if judged and all(each.reason is not None for each in judged):
        raise InputError(f"no answer can be compared: {judged[0].reason}")
    return judged


async def _judge(model: PreferenceModel, rivals: RivalAnswers) -> JudgedAnswer:
    names = list(rivals.others)
    comparing = (compare_texts(model, rivals.prompt, rivals.answer, rivals.others[name]) for name in names)
    try:
        judgments = await asyncio.gather(*comparing)
    except InputError as error:
        return JudgedAnswer(rivals=rivals, judgments={}, reason=str(error))
    return JudgedAnswer(rivals=rivals, judgments=dict(zip(names, judgments, strict=True)))


def win_metrics(judged: Sequence[JudgedAnswer]) -> Metrics:
    """For each name among the others: `win_rate_NAME`, the share of answers that win against its own, a draw being half
    a win, with `_n` and Wilson's 95 % interval as `_low` and `_high`; and `win_share_NAME`, the mean of
    (1 + score) / 2. Of the comparisons that were asked `order_disagreement` and `position_bias`; and `not_compared`,
    the number of answers that could not be.
    """
    found: dict[str, float | str | None] = {}
    for name in dict.fromkeys(chain.from_iterable(each.rivals.others for each in judged)):
        scores = [each.judgments[name].score for each in judged if name in each.judgments]
        won = [0.5 * (1 + (score > 0) - (score < 0)) for score in scores]
        low, high = wilson_interval(sum(won), len(won)) if won else (None, None)
        found[f"win_rate_{name}"] = mean(won)
        found[f"win_rate_{name}_n"] = float(len(won))
        found[f"win_rate_{name}_low"] = low
        found[f"win_rate_{name}_high"] = high
        found[f"win_share_{name}"] = mean([(1 + score) / 2 for score in scores])
    asked = [
        judgment
        for each in judged
        for name, judgment in each.judgments.items()
        if each.rivals.answer and each.rivals.others[name] and each.rivals.answer != each.rivals.others[name]
    ]
    found["order_disagreement"] = mean([float(judgment.is_order_dependent) for judgment in asked])
    found["position_bias"] = mean([judgment.position_bias for judgment in asked])
    found["not_compared"] = float(sum(each.reason is not None for each in judged))
    return found


def note_answers(judged: Sequence[JudgedAnswer]) -> None:
    """Note the answers side by side with the others, and what the model says of them."""
    with scope(f"{len(judged)} answers to held-out prompts, compared by the preference model"):
        table([_shown(each) for each in judged[:_MAX_SHOWN]])


def _shown(each: JudgedAnswer) -> dict[str, str]:
    rivals = each.rivals
    row = {"prompt": text_of(rivals.prompt[-1]), "answer": rivals.answer}
    for name, other in rivals.others.items():
        verdict = each.verdict(name)
        row[name] = other
        row[f"against {name}"] = (
            f"not compared: {each.reason}" if verdict is None else f"{verdict} ({each.judgments[name].score:+.3f})"
        )
    return row
