"""The page of a run: its figures, curves, answers, checkpoints and settings."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import quote

from cookhouse.report.charts import grouped
from cookhouse.report.columns import curves_of
from cookhouse.report.curves import step_range
from cookhouse.report.held_out import held_out_table
from cookhouse.report.overfitting import overfitting_remark
from cookhouse.report.overoptimization import overoptimization_chart
from cookhouse.report.page import render
from cookhouse.report.record import Question, RecordedAnswer, RunPart, RunRecord, checkpoint_text
from cookhouse.report.run_charts import has_chart, run_chart
from cookhouse.telemetry import after_step, step_number

_MAX_ANSWERS = 40
_MAX_CHARACTERS = 2000
_SHORT_CHARACTERS = 400
"""Of the messages before a question that are shown without a click."""
_MAX_LINKS = 200


@dataclass(frozen=True, kw_only=True)
class _Asked:
    earlier: Sequence[tuple[str, str]]
    is_short: bool
    """Whether the earlier messages are shown without a click."""
    prompt: str
    expected: str
    answers: Sequence[tuple[str, RecordedAnswer]]
    """Each with when it was given."""


def run_page(record: RunRecord) -> str:
    """One self-contained page of a run, finished or not; what is missing or broken is named on it."""
    settings = record.config.get("config", {})
    curves = curves_of(record.metrics, record.declared)
    steps = step_range(curves)
    answered = {step: answers for step, answers in record.answers.items() if answers}
    questions = _questions(answered, record.teacher)
    return render(
        "run.html",
        title=f"{record.config.get('recipe', 'run')} of {settings.get('model_name', 'an unknown model')}"
        + (" (synthetic)" if record.config.get("synthetic") else ""),
        headline="" if record.headline is None else record.headline.text,
        place=record.place,
        state=record.facts.get("state", ""),
        is_synthetic=bool(record.config.get("synthetic")),
        resume=record.resume,
        parts=[_part(part) for part in record.parts],
        facts=_facts(record, steps[1] if curves else "-").items(),
        warnings=record.warnings,
        overfitting=overfitting_remark(record.metrics, record.checkpoints, record.declared),
        notes=record.notes,
        gaps=record.gaps,
        held_out=held_out_table(curves),
        overoptimization=overoptimization_chart(record.metrics, steps),
        chart_groups=list(grouped([run_chart(curve, steps) for curve in curves if has_chart(curve)])),
        evaluations=[
            *(_evaluation(after_step(step), answers) for step, answers in answered.items()),
            *([_evaluation("the teacher", record.teacher)] if record.teacher else []),
        ],
        questions=questions[:_MAX_ANSWERS],
        num_more_questions=max(0, len(questions) - _MAX_ANSWERS),
        max_characters=_MAX_CHARACTERS,
        page_groups=[
            (title, folder, len(names), [_link(folder, name) for name in names[-_MAX_LINKS:]])
            for title, folder, names in (
                ("Rollouts", "rollouts", record.rollouts),
                ("Notes of evaluators", "evaluations", record.evaluations),
            )
            if names
        ],
        checkpoints=[
            (
                point.name + " (best)" * (point is record.best),
                point.step,
                point.state_path or "-",
                point.sampler_path or "-",
            )
            for point in record.checkpoints
        ],
        settings=[
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in settings.items()
        ],
    )


def _facts(record: RunRecord, last_step: object) -> Mapping[str, object]:
    return {
        **record.facts,
        **{name: record.config[name] for name in ("seed", "version", "revision") if name in record.config},
        **_synthetic(record.config.get("synthetic")),
        "folder": record.folder,
        "last step with metrics": last_step,
        **(
            {}
            if record.best is None
            else {"best checkpoint": f"{record.best.name}: {checkpoint_text(record.best, record.declared)}"}
        ),
    }


def _synthetic(ports: object) -> Mapping[str, str]:
    if not isinstance(ports, list) or not ports:
        return {}
    return {"synthetic": f"no-op adapters made it up: {', '.join(map(str, ports))}"}


def _part(part: RunPart) -> tuple[str, str | None, str, str, str]:
    """Name, address of its page, recipe, state, and what came of it."""
    address = None if part.page is None else quote(os.fsencode(part.page))
    return part.name, address, part.recipe, part.state, "-" if part.headline is None else part.headline.text


def _evaluation(when: str, answers: Sequence[RecordedAnswer]) -> str:
    asked = _by_question(answers).values()
    right = sum(answer.is_correct is True for answer in asked)
    is_judged = any(answer.verdict is not None for answer in asked)
    return f"{when}: {right} of {len(asked)} {'win against what was expected' if is_judged else 'correct'}"


def _questions(answered: Mapping[int, Sequence[RecordedAnswer]], teacher: Sequence[RecordedAnswer]) -> list[_Asked]:
    """Questions of the last evaluation with the answers of each, matched by question; and a teacher's."""
    by_step = {after_step(step): _by_question(answers) for step, answers in answered.items()}
    last = list(by_step.values())[-1] if by_step else {}
    by_step["the teacher"] = _by_question(teacher)
    return [
        _Asked(
            earlier=earlier,
            is_short=sum(len(text) for _, text in earlier) <= _SHORT_CHARACTERS,
            prompt=prompt,
            expected=expected,
            answers=[(when, asked[question]) for when, asked in by_step.items() if question in asked],
        )
        for question in last
        for earlier, prompt, expected in [question]
    ]


def _by_question(answers: Sequence[RecordedAnswer]) -> dict[Question, RecordedAnswer]:
    return {answer.question: answer for answer in answers}


def _page_text(stem: str) -> str:
    """Title of a page of rollouts or notes: `000002` is of the third step, `test-000002` and `000002-0` of the
    weights after two.
    """
    named = re.fullmatch(r"(?P<test>test-)?(?P<step>\d{6,})(-(?P<mark>.+))?", stem)
    if named is None:
        return stem
    step = int(named["step"])
    if named["mark"]:
        return f"{after_step(step)} ({named['mark']})"
    return f"held out, {after_step(step)}" if named["test"] else f"step {step_number(step):,}"


def _link(folder: str, name: str) -> tuple[str, str]:
    """Text and address."""
    return _page_text(PurePath(name).stem), f"{folder}/{quote(os.fsencode(name))}"
