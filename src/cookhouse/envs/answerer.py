"""Who answers in a game of twenty questions: a second model, or rules about numbers."""

import re
from dataclasses import dataclass
from typing import Protocol

from cookhouse.chat import text_of
from cookhouse.rl import MessageCompleter

_ASK = (
    "We play a game of twenty questions, and you answer. The secret is: {secret}. Answer the question about the secret "
    "with Yes or No, and nothing else.\n\nQuestion: {question}"
)
_VERDICT = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_COMPARISON = re.compile(r"\b(larger|greater|higher|more|smaller|less|lower|fewer) than (\d{1,9})\b", re.IGNORECASE)
_LARGER = {"larger", "greater", "higher", "more"}


class Answerer(Protocol):
    """Knows the secret and answers questions about it."""

    async def __call__(self, secret: str, question: str) -> str:
        """The answer, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswerer:
    """Asks a model, and passes on no more than its yes or no."""

    completer: MessageCompleter

    async def __call__(self, secret: str, question: str) -> str:
        asked = _ASK.format(secret=secret, question=question)
        verdict = _VERDICT.search(text_of(await self.completer([{"role": "user", "content": asked}])))
        return f"{verdict[0].capitalize()}." if verdict else "I cannot answer that."


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberAnswerer:
    """Compares the secret, a whole number, with one in the question; a wrong number is `Not 12.`, all else `No.`"""

    async def __call__(self, secret: str, question: str) -> str:
        if comparison := _COMPARISON.search(question):
            word, bound = comparison[1].lower(), int(comparison[2])
            is_true = int(secret) > bound if word in _LARGER else int(secret) < bound
            return "Yes." if is_true else "No."
        named = re.findall(r"\d{1,9}", question)
        return f"Not {named[0]}." if len(named) == 1 else "No."
