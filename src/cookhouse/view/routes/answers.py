"""Held-out answers by question, of two evaluations side by side: those that changed first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.pages import run_address
from cookhouse.report import RecordedAnswer
from cookhouse.report.examples import question_values
from cookhouse.report.item_changes import Change, ItemChanges, item_changes
from cookhouse.report.record import Question
from cookhouse.runs.listing.find import FoundRun
from cookhouse.runs.reading.rollouts import rollouts_file
from cookhouse.runs.samples import evaluated_steps, read_answers
from cookhouse.telemetry import after_step
from cookhouse.view.pages import ask_address, page_and_json
from cookhouse.view.paging import Paging
from cookhouse.view.tokens.query import one_of, whole, words

_QUESTIONS = 30
_MAX_FILE_BYTES = 64 << 20
_MAX_EARLIER = 20
_NAMES = {
    Change.GAINED: "wrong to right",
    Change.LOST: "right to wrong",
    Change.RIGHT: "right in both",
    Change.WRONG: "wrong in both",
}


def _read(request: Request) -> dict[str, Any]:
    run = request.app.state.place.run(request.path_params["name"])
    files = evaluated_steps(run.path)
    before, after = _chosen(request, run, list(files))
    answers = {step: _answers(files[step]) for step in dict.fromkeys((before, after))}
    changes = item_changes(_scores(answers[before]), _scores(answers[after]))
    wanted = one_of(request, "change", ("", *(change.value for change in Change)))
    text = words(request, "text")
    found = [
        (change, question)
        for change in Change
        if wanted in ("", change.value)
        for question in changes.items[change]
        if _has(text, question, answers)
    ]
    paging = Paging.of(request, len(found), _QUESTIONS)
    return {
        "name": run.name,
        "title": f"Answers {after_step(before)} and {after_step(after)}",
        "steps": [{"step": step, "title": after_step(step)} for step in files],
        "before": before,
        "after": after,
        "change": wanted,
        "text": text,
        "changes": [_change(change, changes, run, request) for change in Change],
        "num_only_one": changes.num_only_first + changes.num_only_second,
        "difference": {"mean": changes.difference.mean, "stderr": changes.difference.stderr, "n": changes.difference.n},
        "questions": [
            _question(run, change, question, answers, before, after) for change, question in paging.cut(found)
        ],
        "paging": paging.as_json(),
        "rollouts": [
            {"title": after_step(step), "address": run_address(run.name, f"rollouts/test-{step}")}
            for step in dict.fromkeys((before, after))
            if rollouts_file(run.path, step, is_test=True).is_file()
        ],
    }


def _chosen(request: Request, run: FoundRun, steps: Sequence[int]) -> tuple[int, int]:
    """The two evaluations: `step` asks for one and the one before it; by default they are the first and the last."""
    if not steps:
        raise UnknownNameError(
            "evaluation", "answers", [], way_out=f"{run.name} has answered no held-out questions yet"
        )
    step = whole(request, "step", None)
    after = whole(request, "after", steps[-1] if step is None else step)
    earlier = [each for each in steps if after is not None and each < after]
    nearest = earlier[-1] if earlier else steps[0]
    before = whole(request, "before", steps[0] if step is None else nearest)
    for each in (before, after):
        if each not in steps:
            shown = ", ".join(map(str, steps[:20]))
            raise InputError(f"{run.name} has no answers after step {each}; it has some after {shown}")
    assert before is not None
    assert after is not None
    return before, after


def _answers(path: Path) -> dict[Question, RecordedAnswer]:
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise InputError(f"{path} is larger than {_MAX_FILE_BYTES:,} bytes; a page shows no such file")
    return {answer.question: answer for answer in read_answers(path)}


def _scores(answers: Mapping[Question, RecordedAnswer]) -> dict[Question, float]:
    return {question: float(answer.is_correct) for question, answer in answers.items()}


def _has(text: str, question: Question, answers: Mapping[int, Mapping[Question, RecordedAnswer]]) -> bool:
    if not text:
        return True
    earlier, prompt, expected = question
    said = [prompt, expected, *(part for _, part in earlier), *(each[question].answer for each in answers.values())]
    return any(text.lower() in each.lower() for each in said)


def _change(change: Change, changes: ItemChanges[Question], run: FoundRun, request: Request) -> dict[str, Any]:
    kept = {name: request.query_params[name] for name in ("step", "before", "after") if name in request.query_params}
    return {
        "change": change.value,
        "title": _NAMES[change],
        "count": len(changes.items[change]),
        "address": run_address(run.name, "answers") + "?" + urlencode({**kept, "change": change.value}),
    }


def _question(
    run: FoundRun,
    change: Change,
    question: Question,
    answers: Mapping[int, Mapping[Question, RecordedAnswer]],
    before: int,
    after: int,
) -> dict[str, Any]:
    earlier, prompt, _ = question
    given = {after_step(step): answers[step][question] for step in dict.fromkeys((before, after))}
    return {
        **question_values((earlier[-_MAX_EARLIER:], prompt, question[2]), given),
        "change": change.value,
        "title": _NAMES[change],
        "ask_address": ask_address([run.name], [*earlier, ("user", prompt)]),
    }


ROUTES = page_and_json("/runs/{name:path}/-/answers", _read, "answers.html")
