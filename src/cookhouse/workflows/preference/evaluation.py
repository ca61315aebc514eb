"""Held-out pairs, measured by the weights at one point of a run."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cookhouse.chat import Renderer, text_of
from cookhouse.data import Conversation, PreferenceRow, last_turn_differs
from cookhouse.evals import Answer, ExactMatchEvaluator, is_exact_match, mean, wilson_interval
from cookhouse.evals import Metrics as MaybeMetrics
from cookhouse.report import RecordedAnswer
from cookhouse.settings import PairLossSettings
from cookhouse.telemetry import Telemetry
from cookhouse.training import Pair, Reference, SamplingClient, TrainingClient, measure_pairs
from cookhouse.workflows.training_run.evaluation import record_metrics

_SOURCE = "source"


class HeldOutAnswers:
    """What the weights answer, greedily, to the prompts of held-out pairs, and which of the two answers that is.

    Pairs of several turns, or whose chosen answer is no text, are not asked.
    """

    def __init__(
        self, rows: Sequence[PreferenceRow], renderer: Renderer, *, max_tokens: int, context_tokens: int | None
    ) -> None:
        """There has to be one that can be asked: see `askable`."""
        asked = [_conversation(row) for row in rows]
        self._rejected = {row.source: text_of(row.rejected[-1]) for row in rows}
        self._evaluator = ExactMatchEvaluator(
            asked, renderer, max_tokens=max_tokens, context_tokens=context_tokens, group_by=_SOURCE
        )

    @property
    def notes(self) -> Sequence[str]:
        return self._evaluator.notes

    @property
    def longest_tokens(self) -> int:
        """Of a prompt with its answer, at most."""
        return self._evaluator.longest_tokens

    async def __call__(self, client: SamplingClient) -> tuple[MaybeMetrics, list[RecordedAnswer]]:
        """`answered_chosen`, its `_stderr` and `_n`, and `answered_rejected`: shares of answers that are exactly one of
        the two; `answer_win_rate`, in which any other answer is half a win, with Wilson's 95 % interval as `_low` and
        `_high`; `malformed`; `answer_characters`, a mean; and the answers.
        """
        found = await self._evaluator(client)
        answers = self._evaluator.answers
        rejected = [self._is_rejected(answer) for answer in answers]
        won = [0.5 * (1.0 + answer.is_correct - lost) for answer, lost in zip(answers, rejected, strict=True)]
        low, high = wilson_interval(sum(won), len(won))
        metrics: MaybeMetrics = {
            "answered_chosen": found["exact_match"],
            "answered_chosen_stderr": found["exact_match_stderr"],
            "answered_chosen_n": found["exact_match_n"],
            "answered_rejected": mean([float(lost) for lost in rejected]),
            "answer_win_rate": mean(won),
            "answer_win_rate_low": low,
            "answer_win_rate_high": high,
            "answer_characters": mean([float(len(answer.answer)) for answer in answers]),
            "malformed": found["malformed"],
        }
        return metrics, [_recorded(answer) for answer in answers]

    def _is_rejected(self, answer: Answer) -> bool:
        assert answer.group is not None
        return is_exact_match(answer.answer, self._rejected[answer.group])


def askable(rows: Sequence[PreferenceRow]) -> list[PreferenceRow]:
    """Those whose answers are one text each, to one prompt."""
    return [
        row
        for row in rows
        if last_turn_differs(row) and text_of(row.chosen[-1]).strip() and not row.chosen[-1].get("tool_calls")
    ]


@dataclass(frozen=True, kw_only=True)
class PairEvaluation:
    """Loss, accuracy, margin and rewards of held-out pairs, and what is answered to their prompts, from a snapshot."""

    pairs: Sequence[Pair]
    answers: HeldOutAnswers | None
    reference: Reference
    settings: PairLossSettings
    telemetry: Telemetry
    keep: Callable[[int, Sequence[RecordedAnswer]], None]

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Mapping[str, float | str]]:
        read = measure_pairs(client, self.pairs, self.reference, self.settings)
        snapshot = None if self.answers is None else client.save_weights_and_get_sampling_client()
        return self._finish(step, read, snapshot)

    async def _finish(
        self,
        step: int,
        read: Callable[[], Awaitable[Mapping[str, float]]],
        snapshot: Awaitable[SamplingClient] | None,
    ) -> Mapping[str, float | str]:
        measured, count = await read(), len(self.pairs)
        low, high = wilson_interval(measured["accuracy"] * count, count)
        found: MaybeMetrics = {**measured, "accuracy_n": float(count), "accuracy_low": low, "accuracy_high": high}
        if self.answers is not None and snapshot is not None:
            metrics, answers = await self.answers(await snapshot)
            found = {**found, **metrics}
            self.keep(step, answers)
        return record_metrics(self.telemetry, step, found)


def _conversation(row: PreferenceRow) -> Conversation:
    return Conversation(messages=[*row.prompt, *row.chosen], source=row.source, extra={_SOURCE: row.source})


def _recorded(answer: Answer) -> RecordedAnswer:
    return RecordedAnswer(
        prompt=text_of(answer.prompt[-1]),
        expected=answer.expected,
        answer=answer.answer,
        is_correct=answer.is_correct,
        group=None,
    )
