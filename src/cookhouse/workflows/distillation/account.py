"""What a run that learns from a teacher tells a person: what it would do, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from cookhouse.runs import Figure, RunResult
from cookhouse.telemetry import keys, read_metrics
from cookhouse.workflows.distillation.record import TeacherRecord
from cookhouse.workflows.reinforcement.account import facts as rollout_facts
from cookhouse.workflows.reinforcement.account import figures as rollout_figures
from cookhouse.workflows.training_run.account import Figures, training_result
from cookhouse.workflows.training_run.run import TrainingState

if TYPE_CHECKING:
    from cookhouse.workflows.distillation.on_policy import OnPolicyState

Row = Mapping[str, Any]

GAP_CLOSED = "distillation/gap_closed"
_COMPARED = ("env/all/correct", "exact_match")
"""By which student and teacher are compared."""
_OF_STEPS = (keys.TEACHER_KL, "distill/", "train/", "optim/loss")

S = TypeVar("S", bound=TrainingState)


def distillation_result(figures: Figures, state: S, seconds: float) -> RunResult[S]:
    """The result, whose state has the last step's `distillation_metrics`, also where this sitting took no step; answers
    have the teacher's beside them.
    """
    taught: Any = state
    rows = read_metrics(state.folder.metrics)
    last: Row = next((row for row in reversed(rows) if keys.LEARNING_RATE in row), {})
    taught.distillation_metrics = {
        name.removeprefix("train/"): value for name, value in last.items() if name.startswith(_OF_STEPS)
    }
    record: TeacherRecord = taught.teacher_results
    made = training_result(lambda *rows: [*figures(*rows), *_beside(record, *rows)], state, seconds)
    said = {(answer.prompt, answer.expected): answer.answer for answer in record.answers}
    samples = [replace(each, teacher=said.get((each.prompt, each.expected))) for each in made.summary.samples]
    return replace(made, metrics={**made.metrics, **record.metrics}, summary=replace(made.summary, samples=samples))


def _beside(record: TeacherRecord, first: Row, last: Row, after: Row) -> list[Figure]:
    """What the teacher itself scores, and how much of the way to it the student has come."""
    del last
    name = next((name for name in record.metrics if name.removeprefix("teacher/") in _COMPARED), None)
    if name is None:
        return []
    score = record.metrics[name]
    own = f"test/{name.removeprefix('teacher/')}"
    figures = [
        Figure(name=name, label="held-out score of the teacher itself", before=score, after=score, is_share=True)
    ]
    before, now = first.get(own), after.get(own)
    if before is not None and now is not None and score > before:
        closed = (now - before) / (score - before)
        figures.append(
            Figure(
                name=GAP_CLOSED, label="share of the gap to the teacher closed", before=0.0, after=closed, is_share=True
            )
        )
    return figures


def on_policy_figures(first: Row, last: Row, after: Row) -> Sequence[Figure]:
    """Those of rollouts, and the divergence from the teacher in training."""
    divergence = Figure(
        name=keys.TEACHER_KL,
        label="divergence from the teacher, first and last step (nats per token)",
        before=first.get(keys.TEACHER_KL),
        after=last.get(keys.TEACHER_KL),
    )
    return [*rollout_figures(first, last, after), divergence]


def on_policy_facts(state: "OnPolicyState") -> dict[str, str]:
    """Those of rollouts, and who teaches."""
    facts = rollout_facts(state)
    facts["teacher"] = "; ".join(
        teacher.name
        + ("" if teacher.tag is None else f" for {teacher.tag}")
        + ("" if teacher.coef == 1.0 else f", counted {teacher.coef:g} times")
        for teacher in state.named
    )
    return facts
