"""Held-out pairs, measured by the weights at one point of a run."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cookhouse import algorithms as alg
from cookhouse.chat import Message, Renderer, text_of
from cookhouse.data import Conversation, PreferenceRow
from cookhouse.errors import InputError
from cookhouse.evals import (
    ExactMatchEvaluator,
    HeldOutAnswer,
    JudgedAnswer,
    RivalAnswers,
    is_exact_match,
    judge_answers,
    mean,
    note_answers,
    wilson_interval,
    win_metrics,
)
from cookhouse.evals import Metrics as MaybeMetrics
from cookhouse.grading import PreferenceModel
from cookhouse.losses.pair_losses import PAIR_LOSSES
from cookhouse.report import RecordedAnswer
from cookhouse.settings import PairLossSettings
from cookhouse.telemetry import Entry, Recording, Telemetry
from cookhouse.training import SamplingClient, TrainingClient

_SOURCE = "source"
_WIN_RATE = "answer_win_rate"
_CHOSEN = "chosen"
_INITIAL = "initial"
_CHUNK_PAIRS = 32


class PairAnswerEvaluation:
    """Evaluation of the weights' greedy answers to the prompts of held-out pairs: which of the two answers each is.

    Pairs of several turns, or whose chosen answer is no text, are not asked.
    """

    def __init__(
        self, rows: Sequence[PreferenceRow], renderer: Renderer, *, max_tokens: int, context_tokens: int | None
    ) -> None:
        """There has to be one that can be asked: see `askable`."""
        asked = [_conversation(row) for row in rows]
        self._rejected = {row.source: _said(row, row.rejected, renderer) for row in rows}
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

    async def __call__(self, client: SamplingClient) -> tuple[MaybeMetrics, Sequence[HeldOutAnswer]]:
        """`answered_chosen`, its `_stderr` and `_n`, and `answered_rejected`: shares of answers that are exactly one of
        the two; `answer_win_rate`: of those that are, `_n` in all, the share that is the chosen one, with Wilson's 95 %
        interval as `_low` and `_high`; `malformed`; `answer_characters`, a mean; and the answers.
        """
        found = await self._evaluator(client)
        answers = self._evaluator.answers
        num_chosen = sum(answer.is_correct for answer in answers)
        num_rejected = sum(map(self._is_rejected, answers))
        decided = num_chosen + num_rejected
        low, high = wilson_interval(num_chosen, decided) if decided else (None, None)
        metrics: MaybeMetrics = {
            "answered_chosen": found["exact_match"],
            "answered_chosen_stderr": found["exact_match_stderr"],
            "answered_chosen_n": found["exact_match_n"],
            "answered_rejected": num_rejected / len(answers),
            "answer_win_rate": num_chosen / decided if decided else None,
            "answer_win_rate_n": float(decided),
            "answer_win_rate_low": low,
            "answer_win_rate_high": high,
            "answer_characters": mean([float(len(answer.answer)) for answer in answers]),
            "malformed": found["malformed"],
        }
        return metrics, answers

    def _is_rejected(self, answer: HeldOutAnswer) -> bool:
        assert answer.group is not None
        return answer.is_whole and is_exact_match(answer.answer, self._rejected[answer.group])


def askable(rows: Sequence[PreferenceRow], renderer: Renderer) -> list[PreferenceRow]:
    """Rows whose answers are one text each, to one prompt."""
    return [
        row
        for row in rows
        if row.differs_in_last_turn and not row.chosen[-1].get("tool_calls") and _said(row, row.chosen, renderer)
    ]


def _said(row: PreferenceRow, said: Sequence[Message], renderer: Renderer) -> str:
    """The text of one of the two answers, as one of the model's is read."""
    try:
        return text_of(renderer.read_back([*row.prompt, *said])).strip()
    except InputError as error:
        raise InputError(f"{row.source}: {error}") from error


class AnswerJudge:
    """Compares answers to the prompts of held-out pairs with the chosen ones, and with what the weights that the run
    began with answered, by a preference model.
    """

    def __init__(
        self,
        model: PreferenceModel,
        *,
        read_initial: Callable[[], Sequence[RecordedAnswer]],
        keep: Callable[[int, Sequence[Entry]], None],
    ) -> None:
        """`read_initial`: what those weights answered in an earlier launch, in the same order; empty: nobody knows."""
        self._model = model
        self._read_initial = read_initial
        self._keep = keep
        self._initial: asyncio.Future[list[str]] | None = None

    def begin(self, step: int) -> None:
        """Say that the answers of a step are on their way: evaluations of several steps overlap."""
        if step == 0:
            self._initial = asyncio.get_running_loop().create_future()

    async def __call__(
        self, step: int, answers: Sequence[HeldOutAnswer]
    ) -> tuple[MaybeMetrics, Sequence[RecordedAnswer]]:
        """`win_metrics` against `chosen` and `initial`, and the answers with a verdict against the chosen ones. All are
        kept side by side.

        Raises:
            InputError: no comparison can be put to the model.
            ServiceError: it failed.
        """
        initial = await self._initial_texts(step, answers)
        others = [{_CHOSEN: answer.expected.strip()} for answer in answers]
        if len(initial) == len(answers):
            others = [{**some, _INITIAL: text.strip()} for some, text in zip(others, initial, strict=True)]
        asked = [
            RivalAnswers(prompt=answer.prompt, answer=answer.answer.strip(), others=some)
            for answer, some in zip(answers, others, strict=True)
        ]
        judged = await judge_answers(self._model, asked)
        recording = Recording()
        with recording.active():
            note_answers(judged)
        self._keep(step, recording.drain())
        return win_metrics(judged), [_recorded(*each) for each in zip(answers, judged, strict=True)]

    async def _initial_texts(self, step: int, answers: Sequence[HeldOutAnswer]) -> list[str]:
        if self._initial is None:
            return [answer.answer for answer in self._read_initial()]
        if step == 0:  # they are the answers themselves, and draw
            self._initial.set_result([answer.answer for answer in answers])
        return await self._initial


@dataclass(frozen=True, kw_only=True)
class PairEvaluation:
    """Loss, accuracy, margin and rewards of held-out pairs, and what is answered to their prompts, from a snapshot."""

    pairs: Sequence[alg.Pair]
    answers: PairAnswerEvaluation | None
    judge: AnswerJudge | None
    """None: answers are compared with those of the pairs as texts."""
    reference: alg.Reference
    settings: PairLossSettings
    telemetry: Telemetry
    keep: Callable[[int, Sequence[RecordedAnswer]], None]

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Mapping[str, float | str]]:
        read = measure_pairs(client, self.pairs, self.reference, self.settings)
        if self.judge is not None:
            self.judge.begin(step)
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
            recorded: Sequence[RecordedAnswer] = [_recorded(answer) for answer in answers]
            if self.judge is not None:
                judged, recorded = await self.judge(step, answers)
                metrics = {**{name: value for name, value in metrics.items() if _WIN_RATE not in name}, **judged}
            found = {**found, **metrics}
            self.keep(step, recorded)
        return alg.record_metrics(self.telemetry, step, found)


def _conversation(row: PreferenceRow) -> Conversation:
    return Conversation(messages=[*row.prompt, *row.chosen], source=row.source, extra={_SOURCE: row.source})


def _recorded(answer: HeldOutAnswer, judged: JudgedAnswer | None = None) -> RecordedAnswer:
    recorded = replace(alg.recorded_answer(answer), group=None)  # its group is its row
    if judged is None:
        return recorded
    verdict = judged.verdict(_CHOSEN)
    return replace(recorded, is_correct=verdict == "wins", verdict=verdict)


def measure_pairs(
    client: TrainingClient, pairs: Sequence[alg.Pair], reference: alg.Reference, settings: PairLossSettings
) -> Callable[[], Awaitable[dict[str, float]]]:
    """Requests logprobs under the present weights by `forward`, which leaves no gradient. What is returned reads them:
    `pair_metrics` over all pairs.
    """
    chunks = [pairs[start : start + _CHUNK_PAIRS] for start in range(0, len(pairs), _CHUNK_PAIRS)]
    asked = [client.forward(alg.interleaved(chunk), "cross_entropy") for chunk in chunks]

    async def read() -> dict[str, float]:
        reference_P2 = await reference.logprobs(pairs)
        outputs = [fields for pending in asked for fields in (await pending).loss_fn_outputs]
        logprobs_D_T = [fields["logprobs"].to_numpy() for fields in outputs]
        loss = PAIR_LOSSES.find(settings.pair_loss)
        found = alg.pairs_of_logprobs(alg.interleaved(pairs), logprobs_D_T, reference_P2)
        return alg.pair_metrics(loss, settings, found, alg.mean_loss(loss, settings, found))

    return read
