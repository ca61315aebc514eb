"""Answerers of a game of twenty questions: a second model, or rules about numbers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cookhouse.chat import Renderer, Termination, text_of
from cookhouse.rl import MessageCompleter, TokenCompleter

_ASK = (
    "We play a game of twenty questions, and you answer. The secret is: {secret}. Answer the question about the secret "
    "with Yes or No, and nothing else.\n\nQuestion: {question}"
)
_VERDICT = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_COMPARISON = re.compile(r"\b(larger|greater|higher|more|smaller|less|lower|fewer) than (\d{1,9})\b", re.IGNORECASE)
_LARGER = {"larger", "greater", "higher", "more"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an answerer says, and figures of how it came to that."""

    text: str
    metrics: Mapping[str, float] = field(default_factory=dict)


class GameAnswerer(Protocol):
    """Knows the secret and answers questions about it."""

    async def __call__(self, secret: str, question: str) -> Reply:
        """The answer, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswerer:
    """Asks a model, and passes on no more than its yes or no; what it thought before is not read.

    The figures are 0 or 1: `answerer/empty` without any text, `answerer/cut` that did not end by itself, and
    `answerer/undecided` with neither yes nor no.
    """

    completer: TokenCompleter
    renderer: Renderer

    async def __call__(self, secret: str, question: str) -> Reply:
        asked = _ASK.format(secret=secret, question=question)
        prompt = self.renderer.build_generation_prompt([{"role": "user", "content": asked}])
        response = await self.completer(prompt, self.renderer.get_stop_sequences())
        message, termination = self.renderer.parse_response(response.tokens)
        reply = _reply(text_of(message))
        cut = {"answerer/cut": float(termination == Termination.MALFORMED)}
        return Reply(text=reply.text, metrics={**reply.metrics, **cut})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleterGameAnswerer:
    """As `ModelAnswerer`, by a completer of messages: nobody says whether its answers end by themselves."""

    completer: MessageCompleter

    async def __call__(self, secret: str, question: str) -> Reply:
        asked = _ASK.format(secret=secret, question=question)
        return _reply(text_of(await self.completer([{"role": "user", "content": asked}])))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberAnswerer:
    """Compares the secret, a whole number, with one in the question; a wrong number is `Not 12.`, all else `No.`"""

    async def __call__(self, secret: str, question: str) -> Reply:
        return Reply(text=_compare(int(secret), question))


def _reply(text: str) -> Reply:
    verdict = _VERDICT.search(text)
    return Reply(
        text=f"{verdict[0].capitalize()}." if verdict else "I cannot answer that.",
        metrics={"answerer/empty": float(not text.strip()), "answerer/undecided": float(verdict is None)},
    )


def _compare(secret: int, question: str) -> str:
    if comparison := _COMPARISON.search(question):
        word, bound = comparison[1].lower(), int(comparison[2])
        is_true = secret > bound if word in _LARGER else secret < bound
        return "Yes." if is_true else "No."
    named = re.findall(r"\d{1,9}", question)
    return f"Not {named[0]}." if len(named) == 1 else "No."
