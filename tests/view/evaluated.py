"""Evaluations made by hand: those that stand alone, and those of a training run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.runs.kit import make_run

from cookhouse.report import RecordedAnswer
from cookhouse.runs.samples import answers_path, write_answers


def question_row(item: int, text: str | None = None, benchmark: str = "sums", **more: Any) -> dict[str, Any]:
    asked = [["user", text or f"What is {item} + {item}?"]]
    row = {"benchmark": benchmark, "item": item, "name": None, "group": None, "expected": str(2 * item)}
    return row | {"asked": asked} | more


def answer_row(item: int, texts: Sequence[str], benchmark: str = "sums") -> dict[str, Any]:
    values: list[dict[str, Any]] = [{"text": text, "is_cut": False, "error": None, "logprobs": {}} for text in texts]
    return {"benchmark": benchmark, "item": item, "values": values}


def grade_row(item: int, correct: Sequence[float], benchmark: str = "sums") -> dict[str, Any]:
    values = [{"correct": each, "is_well_formed": True, "metrics": {}} for each in correct]
    return {"benchmark": benchmark, "item": item, "values": values}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_evaluation(
    folder: Path,
    scores: Sequence[float],
    *,
    texts: Mapping[int, str] | None = None,
    questions: Sequence[Mapping[str, Any]] | None = None,
    **settings: Any,
) -> Path:
    """An evaluation of one sample for each item; `texts` are answers other than `answer N`."""
    make_run(folder, recipe="eval", **{"model_name": f"model-of-{folder.name}", **settings})
    texts = texts or {}
    asked = [question_row(item) for item in range(len(scores))] if questions is None else questions
    write_rows(folder / "questions.jsonl", asked)
    write_rows(folder / "answers.jsonl", [answer_row(i, [texts.get(i, f"answer {i}")]) for i in range(len(scores))])
    write_rows(folder / "grades.jsonl", [grade_row(i, [score]) for i, score in enumerate(scores)])
    mean = sum(scores) / len(scores)
    row = {"step": 0, "test/sums/correct": mean, "test/sums/correct_stderr": 0.05, "test/sums/correct_n": len(scores)}
    write_rows(folder / "metrics.jsonl", [row])
    return folder


def make_trained(folder: Path, answers: Mapping[int, Sequence[bool]]) -> Path:
    """A training run whose evaluations after some steps were right or wrong, question by question."""
    share = {step: sum(some) / len(some) for step, some in answers.items()}
    make_run(folder, rows=[{"step": step, "test/exact_match": value} for step, value in share.items()])
    for step, some in answers.items():
        told = [_answer(number, is_right, step) for number, is_right in enumerate(some)]
        write_answers(answers_path(folder, step), told)
    return folder


def _answer(number: int, is_right: bool, step: int) -> RecordedAnswer:
    said = str(2 * number) if is_right else f"wrong after {step}"
    return RecordedAnswer(prompt=f"{number} + {number}?", expected=str(2 * number), answer=said, is_correct=is_right)
