"""One item of an evaluation with the whole of what was asked and answered, by ranges."""

from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request

from cookhouse.errors import InputError
from cookhouse.runs.reading.answer_sets import AnswerSet
from cookhouse.view.pages import ask_address, page_and_json
from cookhouse.view.paging import whole_number
from cookhouse.view.routes.evaluations.sides import Side, facts_of, side_of, steps_of, weights_of

_MAX_CHARACTERS: Final = 50_000
_MAX_SAMPLES: Final = 200


def _read(request: Request) -> dict[str, Any]:
    names, steps = request.query_params.getlist("run"), steps_of(request)
    if len(names) != 1 or len(steps) > 1:
        raise InputError("name one run, and one step of it: run=A&step=K&item=N")
    side = side_of(request.app.state.place.run(names[0]), steps[0] if steps else None)
    benchmark, number = request.query_params.get("benchmark", ""), whole_number(request, "item", 0, 0)
    item = _found(side.answers, benchmark, number)
    answers, asked = side.answers.answers(item), side.answers.text(item)
    sample = whole_number(request, "sample", 0, 0)
    if sample >= len(answers):
        raise InputError(f"sample is from 0 to {len(answers) - 1}, not {sample}")
    return {
        **facts_of(side.run),
        "step": side.step,
        "label": side.label,
        "benchmark": side.answers.benchmark(item),
        "item": number,
        "score": side.answers.scores[item],
        "name": None if asked is None else asked.name,
        "asked": [] if asked is None else [{"role": role, **_start(text)} for role, text in asked.asked],
        "ask_address": None if asked is None else ask_address(weights_of(side), asked.asked),
        "expected": None if asked is None else _start(asked.expected),
        "samples": [
            {"outcome": each.outcome, "address": _address(side, item, index)}
            for index, each in enumerate(answers[:_MAX_SAMPLES])
        ],
        "num_samples": len(answers),
        "sample": sample,
        "outcome": answers[sample].outcome,
        "answer": _range(request, side, item, sample, answers[sample].text),
    }


def _found(answers: AnswerSet, benchmark: str, number: int) -> Any:
    for item in answers.scores:
        if answers.number(item) == number and benchmark in ("", answers.benchmark(item)):
            return item
    raise InputError(f"item {number} of {benchmark or 'this evaluation'} has not been answered")


def _range(request: Request, side: Side, item: Any, sample: int, text: str) -> dict[str, Any]:
    start = min(whole_number(request, "from", 0, 0), len(text))
    end = min(start + _MAX_CHARACTERS, len(text))
    before = max(0, start - _MAX_CHARACTERS)
    return {
        "text": text[start:end],
        "from": start,
        "to": end,
        "characters": len(text),
        "before": _address(side, item, sample, before) if start else None,
        "behind": _address(side, item, sample, end) if end < len(text) else None,
    }


def _start(text: str) -> dict[str, Any]:
    return {"text": text[:_MAX_CHARACTERS], "num_more": max(0, len(text) - _MAX_CHARACTERS)}


def _address(side: Side, item: Any, sample: int, start: int = 0) -> str:
    return f"{side.address(item)}&{urlencode({'sample': sample, 'from': start})}"


ROUTES = page_and_json("/evaluations/item", _read, "evaluation_item.html")
