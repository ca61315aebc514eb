"""Summary of a run that learns from a teacher: what it would do, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from cookhouse.algorithms.base.run import TrainingState
from cookhouse.algorithms.base.summary import (
    Figures,
    adapter_size,
    context_fact,
    model_fact,
    training_result,
)
from cookhouse.runs import Figure, RunResult
from cookhouse.telemetry import keys, read_metrics
from cookhouse.workflows.distillation.evaluation import TeacherRecord
from cookhouse.workflows.distillation.objective import FORWARD_KL
from cookhouse.workflows.distillation.state import OffPolicyState, OnPolicyState
from cookhouse.workflows.reinforcement.summary import facts as rollout_facts
from cookhouse.workflows.reinforcement.summary import figures as rollout_figures
from cookhouse.workflows.reinforcement.summary import write_last_step

Row = Mapping[str, Any]

GAP_CLOSED = "distillation/gap_closed"
_COMPARED = ("env/all/correct", "exact_match")
"""By which student and teacher are compared."""
_SAMPLES, _DROPPED = "distill/samples", "distill/dropped"
_OF_STEPS = (keys.TEACHER_KL, "distill/", "train/", "optim/loss")

S = TypeVar("S", bound=TrainingState)


def distillation_result(figures: Figures, state: S, seconds: float) -> RunResult[S]:
    """The result, whose state has the last step's `distillation_metrics`, also where this launch took no step; answers
    have the teacher's next to them.
    """
    taught: Any = state
    rows = read_metrics(state.folder.metrics)
    last: Row = next((row for row in reversed(rows) if keys.LEARNING_RATE in row), {})
    taught.distillation_metrics = {
        name.removeprefix("train/"): value for name, value in last.items() if name.startswith(_OF_STEPS)
    }
    record: TeacherRecord = taught.teacher_results
    made = training_result(lambda *rows: [*figures(*rows), *_beside(record, *rows)], state, seconds)
    said = {answer.question: answer.answer for answer in record.answers}
    samples = [
        replace(each, teacher=said.get((each.earlier, each.prompt, each.expected))) for each in made.summary.samples
    ]
    return replace(made, metrics={**made.metrics, **record.metrics}, summary=replace(made.summary, samples=samples))


def _beside(record: TeacherRecord, first: Row, last: Row, after: Row) -> list[Figure]:
    """Scores of the teacher itself, and the student's share of the way to them."""
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


def on_policy_result(state: OnPolicyState, seconds: float) -> RunResult[OnPolicyState]:
    """As `distillation_result`; the state has what the last step's rollouts came to, too."""
    write_last_step(state)
    return distillation_result(on_policy_figures, state, seconds)


def on_policy_figures(first: Row, last: Row, after: Row) -> Sequence[Figure]:
    """Figures of rollouts, and the divergence from the teacher in training."""
    divergence = Figure(
        name=keys.TEACHER_KL,
        label="divergence from the teacher, first and last step (nats per token)",
        before=first.get(keys.TEACHER_KL),
        after=last.get(keys.TEACHER_KL),
    )
    return [*rollout_figures(first, last, after), divergence]


def on_policy_facts(state: OnPolicyState) -> dict[str, str]:
    """Facts of rollouts, and the teachers."""
    facts = rollout_facts(state)
    facts["teacher"] = "; ".join(
        teacher.name
        + ("" if teacher.tag is None else f" for {teacher.tag}")
        + ("" if teacher.coef == 1.0 else f", counted {teacher.coef:g} times")
        for teacher in state.named
    )
    return facts


def off_policy_figures(first: Row, last: Row, after: Row) -> Sequence[Figure]:
    """Held-out answers that are as expected and as the teacher's, loss, the divergence from the teacher, and how many
    of its answers were of no use.
    """
    held_out = [
        Figure(name=name, label=label, before=first.get(name), after=after.get(name), is_share=True)
        for name, label in (
            (keys.TEST_EXACT_MATCH, "held-out exact match"),
            ("test/agreement", "held-out answers that are the teacher's"),
        )
    ]
    trained = [
        Figure(name=name, label=label, before=first.get(name), after=last.get(name))
        for name, label in (
            (keys.TRAIN_LOSS, "training loss, first and last step"),
            (FORWARD_KL, "divergence from the teacher, first and last step (nats per token)"),
        )
    ]
    dropped = Figure(
        name=_DROPPED,
        label="teacher's answers that were dropped, first and last step",
        before=_dropped_share(first),
        after=_dropped_share(last),
        is_share=True,
    )
    return [*held_out, *trained, *([dropped] if dropped.before or dropped.after else [])]


def _dropped_share(row: Row) -> float | None:
    return row[_DROPPED] / row[_SAMPLES] if row.get(_SAMPLES) else None


def off_policy_facts(state: OffPolicyState) -> dict[str, str]:
    """Facts of a plan: prompts, the teachers, steps, and the adapter."""
    config, questions = state.config, state.dataset.questions
    longest = max(len(each.teacher_tokens) for each in questions)
    prompted = (
        "as the student is" if state.teacher_prompt is None else f"{len(state.teacher_prompt.text):,} characters more"
    )
    return {
        "model": model_fact(config.model_name),
        "tokenizer": config.model_name,
        "renderer": config.renderer_name,
        "teacher": state.teacher_name,
        "teacher is told": prompted,
        "prompts": f"{len(questions):,} to train on, {len(state.held_out):,} held out; {config.samples_per_prompt} "
        f"answers to each, {config.teacher_samples}",
        "longest prompt": f"{longest:,} tokens, of the teacher's; answers of at most {config.max_tokens:,} more",
        "context": context_fact(state.context_tokens),
        "learned": f"the {config.teacher_top_k} most likely tokens"
        if config.teacher_top_k
        else "what the teacher says",
        "steps": f"{state.total_steps:,} in all, {state.steps_per_epoch:,} per epoch",
        "adapter": adapter_size(config),
    }
