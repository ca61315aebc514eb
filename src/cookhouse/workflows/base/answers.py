"""Answers to held-out conversations as a run directory keeps them."""

from collections.abc import Sequence
from typing import TypedDict

from cookhouse.chat import Message, turn_text
from cookhouse.evals import HeldOutAnswer
from cookhouse.report import RecordedAnswer


class Asked(TypedDict):
    """The conversation before the answer, as a `RecordedAnswer` holds it."""

    prompt: str
    earlier: tuple[tuple[str, str], ...]


def asked_of(messages: Sequence[Message]) -> Asked:
    """Texts of a conversation that ends before the answer."""
    *earlier, last = messages
    return {"prompt": turn_text(last), "earlier": tuple((message["role"], turn_text(message)) for message in earlier)}


def recorded_answer(answer: HeldOutAnswer) -> RecordedAnswer:
    """Record of an answer that is compared with a text."""
    return RecordedAnswer(
        **asked_of(answer.prompt),
        expected=answer.expected,
        answer=answer.answer,
        is_correct=answer.is_correct,
        group=answer.group,
    )
