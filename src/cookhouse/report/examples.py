"""Held-out questions with their answers, before training and after, as plain values for a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from cookhouse.report.record import Question, RecordedAnswer

TEACHER = "the teacher"
"""Who answered, beside weights after some steps."""


def evaluation_text(when: str, answers: Sequence[RecordedAnswer]) -> str:
    """How many of the questions were answered rightly."""
    asked = by_question(answers).values()
    right = sum(answer.is_correct is True for answer in asked)
    is_judged = any(answer.verdict is not None for answer in asked)
    return f"{when}: {right} of {len(asked)} {'win against what was expected' if is_judged else 'correct'}"


def asked_questions(answered: Mapping[str, Sequence[RecordedAnswer]]) -> list[dict[str, Any]]:
    """Questions of the last evaluation that is not a teacher's, with the answers of each, by when they were given;
    those first of which the result changed.
    """
    asked = {when: by_question(answers) for when, answers in answered.items()}
    last = next((each for when, each in reversed(asked.items()) if when != TEACHER), {})
    questions = [
        question_values(question, {when: each[question] for when, each in asked.items() if question in each})
        for question in last
    ]
    return sorted(questions, key=lambda each: not each["change"])


def question_values(question: Question, answers: Mapping[str, RecordedAnswer]) -> dict[str, Any]:
    """One question; `answers` by when they were given, in order."""
    earlier, prompt, expected = question
    given = list(answers.values())
    first, last = given[0].is_correct, given[-1].is_correct
    return {
        "change": "" if first == last else "gained" if last else "lost",
        "earlier": list(earlier),
        "prompt": prompt,
        "expected": expected,
        "group": given[-1].group,
        "answers": [
            {"title": when, "text": each.answer, "is_correct": each.is_correct is True, "verdict": each.verdict}
            for when, each in answers.items()
        ],
        "ask_address": None,
    }


def by_question(answers: Sequence[RecordedAnswer]) -> dict[Question, RecordedAnswer]:
    return {answer.question: answer for answer in answers}
