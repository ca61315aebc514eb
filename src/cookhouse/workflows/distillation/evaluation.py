"""Held-out prompts: the record of a teacher's own answers, kept in the run directory; those of the student at one point
of a run, compared with what is to be said; and how far the student has come to its teacher.
"""

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cookhouse import algorithms as alg
from cookhouse.chat import Message, Renderer, parse_messages, text_of
from cookhouse.data import Conversation, PromptRow
from cookhouse.errors import InputError
from cookhouse.evals import ExactMatchEvaluator, is_exact_match
from cookhouse.files import write_whole
from cookhouse.report import RecordedAnswer
from cookhouse.runs import Figure, RunResult, answer_from_row
from cookhouse.runs.names import TEACHER_FILE
from cookhouse.telemetry import Telemetry, Values, keys
from cookhouse.training import SamplingClient, TrainingClient
from cookhouse.workflows.distillation.samples import TeacherAnswer, refuse_all_failed
from cookhouse.workflows.distillation.teachers import TeacherService

GAP_CLOSED = "distillation/gap_closed"


@dataclass(frozen=True, kw_only=True)
class TeacherRecord:
    """Metrics and answers of teachers; empty where they were not asked."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    answers: Sequence[RecordedAnswer] = field(default_factory=list)
    prompts: Sequence[Sequence[Message]] = field(default_factory=list)
    """Whole, of those whose answers a student is asked for by their text."""


async def kept_record(
    context: alg.RunContext, opened: alg.OpenedRun, ask: Callable[[], Awaitable[TeacherRecord]]
) -> TeacherRecord:
    """The record of a run's teachers, who are asked once in a run. Raises `InputError` where it cannot be kept."""
    path = opened.folder.path / TEACHER_FILE
    if opened.folder.resume is not None and (kept := read_teacher_record(path)) is not None:
        return kept
    with context.telemetry.span("evaluate_teacher"):
        record = await ask()
    row: dict[str, Any] = {"metrics": dict(record.metrics), "answers": [asdict(answer) for answer in record.answers]}
    row["prompts"] = [list(prompt) for prompt in record.prompts]
    write_whole(path, json.dumps(row, indent=1) + "\n")
    return record


def read_teacher_record(path: Path) -> TeacherRecord | None:
    """Record of the teacher; None if there is none.

    Raises:
        InputError: the file holds something else.
    """
    if not path.is_file():
        return None
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        answers = [answer_from_row(answer) for answer in row["answers"]]
        metrics = {str(name): float(value) for name, value in row["metrics"].items()}
        prompts = [parse_messages(prompt) for prompt in row.get("prompts", ())]
        return TeacherRecord(metrics=metrics, answers=answers, prompts=prompts)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} does not hold a teacher's answers ({error}); remove it") from error


def expected_answers(rows: Sequence[PromptRow], answers: Sequence[TeacherAnswer], renderer: Renderer) -> TeacherRecord:
    """Expected answers to held-out prompts: those of the rows, read as the teacher's `renderer` reads its answers, or
    else the teacher's; and the record of the teacher's answers. Prompts without either are left out; `teacher/dropped`
    counts the teacher's failures.

    Raises:
        InputError: the teacher failed on all of them.
    """
    refuse_all_failed(answers, "to the held-out prompts")
    recorded, prompts = [], []
    for row, answer in zip(rows, answers, strict=True):
        expected = _said(row, renderer)
        if not expected:
            if answer.failed is not None:
                continue
            expected = answer.text
        skill = row.extra.get("skill")
        prompts.append(row.prompt)
        recorded.append(
            RecordedAnswer(
                **alg.asked_of(row.prompt),
                expected=expected.strip(),
                answer=answer.text.strip(),
                is_correct=answer.failed is None and is_exact_match(answer.text, expected),
                group=skill if isinstance(skill, str) else None,
            )
        )
    correct = [each.is_correct for each in recorded]
    failed = sum(answer.failed is not None for answer in answers)
    metrics = {"teacher/exact_match": sum(correct) / len(correct), "teacher/dropped": float(failed)}
    return TeacherRecord(metrics=metrics, answers=recorded, prompts=prompts)


def _said(row: PromptRow, renderer: Renderer) -> str:
    if row.answer is None:
        return ""
    said: Message = {"role": "assistant", "content": row.answer}
    return text_of(renderer.read_back([*row.prompt, said])).strip()


class StudentEvaluation:
    """Asks the student, greedily, as it will be asked: without its teacher's prompt.

    Metrics are those of `ExactMatchEvaluator` under `test/`, and `agreement`, the share of answers that are the
    teacher's.
    """

    def __init__(
        self,
        record: TeacherRecord,
        renderer: Renderer,
        *,
        max_tokens: int,
        context_tokens: int | None,
        telemetry: Telemetry,
        keep: Callable[[int, Sequence[RecordedAnswer]], None],
    ) -> None:
        self._record = record
        self._telemetry = telemetry
        self._keep = keep
        self._evaluator = ExactMatchEvaluator(
            [_conversation(prompt, answer) for prompt, answer in zip(record.prompts, record.answers, strict=True)],
            renderer,
            max_tokens=max_tokens,
            context_tokens=context_tokens,
            group_by="skill",
        )

    async def begin(self, client: TrainingClient, step: int) -> Coroutine[Any, Any, Values]:
        return self._finish(step, client.save_weights_and_get_sampling_client())

    async def _finish(self, step: int, snapshot: Awaitable[SamplingClient]) -> Values:
        found = dict(await self._evaluator(await snapshot))
        # By the whole prompt: the last message may be the same in several.
        said = {
            repr(prompt): taught.answer
            for prompt, taught in zip(self._record.prompts, self._record.answers, strict=True)
        }
        answers = self._evaluator.answers
        agreed = [is_exact_match(each.answer, said[repr([*each.prompt])]) for each in answers]
        found["agreement"] = sum(agreed) / len(agreed)
        self._keep(step, [alg.recorded_answer(answer) for answer in answers])
        return alg.record_metrics(self._telemetry, step, found)


def _conversation(prompt: Sequence[Message], answer: RecordedAnswer) -> Conversation:
    said: Message = {"role": "assistant", "content": answer.expected}
    extra = {} if answer.group is None else {"skill": answer.group}
    return Conversation(messages=[*prompt, said], source=f"the held-out prompt {answer.prompt[:80]!r}", extra=extra)


@dataclass(kw_only=True)
class TaughtState(alg.TrainingState):
    """State that the stages of every run that learns from teachers share."""

    teacher_service: TeacherService = field(init=False)
    teacher_results: TeacherRecord = field(default_factory=TeacherRecord)
    """Answers of the teachers to what is held out."""
    distillation_metrics: dict[str, float] = field(default_factory=dict)
    """Of the last step: `loss` and `forward_kl`, or `teacher_kl`, also by data set and by position; and how many of the
    teacher's answers were dropped."""

    def teacher_figures(self, first: alg.Row, after: alg.Row) -> Sequence[Figure]:
        """Score of the teacher itself, and the student's share of the way to it."""
        metrics = self.teacher_results.metrics
        compared = [name for name in metrics if name in ("teacher/env/all/correct", "teacher/exact_match")]
        if not compared:
            return []
        name, score = compared[0], metrics[compared[0]]
        own = name.replace("teacher/", "test/")
        before, now = first.get(own), after.get(own)
        label = "held-out score of the teacher itself"
        figures = [Figure(name=name, label=label, before=score, after=score, is_share=True)]
        if before is not None and now is not None and score > before:
            closed, label = (now - before) / (score - before), "share of the gap to the teacher closed"
            figures.append(Figure(name=GAP_CLOSED, label=label, before=0.0, after=closed, is_share=True))
        return figures

    def result(self, seconds: float) -> RunResult[Any]:
        """As of every run; the state has the last step's metrics, also where this launch took none, and answers have
        the teacher's next to them.
        """
        of_steps = (keys.TEACHER_KL, "distill/", "train/", keys.POLICY_LOSS_MEAN)
        self.distillation_metrics = {
            name.removeprefix("train/"): value
            for name, value in alg.last_step(self.opened.folder).items()
            if name.startswith(of_steps)
        }
        made, record = super().result(seconds), self.teacher_results
        said = {answer.question: answer.answer for answer in record.answers}
        samples = [
            replace(each, teacher=said.get((each.earlier, each.prompt, each.expected))) for each in made.summary.samples
        ]
        metrics = {**made.metrics, **self.context.telemetry.chosen(record.metrics)}
        return replace(made, metrics=metrics, summary=replace(made.summary, samples=samples))
