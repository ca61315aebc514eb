"""Preference models: which of two answers to a prompt is better, as a distribution over A, B and Tie."""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import tinker

from cookhouse.chat import LABELS, Comparison, ComparisonRenderer, Message, in_other_order, text_of
from cookhouse.errors import InputError, ServiceError
from cookhouse.sampling_client import SamplingClient

AskMessages: TypeAlias = Callable[[Sequence[Message]], Awaitable[Message]]
"""The assistant's next message; `cookhouse.rl.MessageCompleter` fits."""

_ASK = (
    "Which of two answers to the last message is better?\n\n==== Conversation ====\n{prompt}\n\n"
    "==== Completion A ====\n{a}\n\n==== Completion B ====\n{b}\n\nAnswer with A, B or Tie, and nothing else."
)
# A label and then an end, a mark, or words that can only praise it: "A better answer is B" and "a tie" begin with no A.
_VERDICT = re.compile(
    r"""\W*(?:(?:answer|completion)\W+)?(?:(?P<label>[AB])|(?:a\s+)?(?P<tie>tie))[*_`"')\]]*"""
    r"""(?:$|[.,;:!?]|\s*[(—–\n]|\s+-\s|\s+(?:wins|is\s+(?:the\s+)?better)\b)""",
    re.IGNORECASE,
)
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """Judgment on which of two answers is better: probabilities that sum to 1, means over both orders of the two."""

    a: float
    b: float
    tie: float
    position_bias: float
    """Half of what the score of whichever answer stands first is above that of whichever stands second, in [-1, 1]."""
    is_order_dependent: bool
    """Whether the two orders name different winners."""

    @property
    def score(self) -> float:
        """Probability of A less that of B, in [-1, 1]: 0 is a tie."""
        return self.a - self.b


EQUAL = Judgment(a=0.0, b=0.0, tie=1.0, position_bias=0.0, is_order_dependent=False)
"""Of an answer and itself."""


_A_WINS = Judgment(a=1.0, b=0.0, tie=0.0, position_bias=0.0, is_order_dependent=False)
_B_WINS = Judgment(a=0.0, b=1.0, tie=0.0, position_bias=0.0, is_order_dependent=False)


class PreferenceModel(Protocol):
    """Says which of two answers is better."""

    async def __call__(self, comparison: Comparison) -> Judgment:
        """Raises what asking raises: a comparison that failed is no tie."""


async def compare_texts(model: PreferenceModel, prompt: Sequence[Message], a: str, b: str) -> Judgment:
    """Compare two answers to a prompt by the model. It is not asked about a text and itself, which draw, nor about an
    empty one, which loses to any other. Raises as the model.
    """
    if a == b:
        return EQUAL
    if not a or not b:
        return _A_WINS if a else _B_WINS
    said: list[list[Message]] = [[{"role": "assistant", "content": text}] for text in (a, b)]
    return await model(Comparison(prompt=list(prompt), completion_a=said[0], completion_b=said[1]))


class GenerativePreferenceModel:
    """A language model that was trained to say A, B or Tie. Its probabilities are those of the labels' first tokens
    among themselves, asked for in both orders, so that it does not matter which answer stands first.
    """

    def __init__(
        self, renderer: ComparisonRenderer, client: SamplingClient, *, context_tokens: int | None = None
    ) -> None:
        """`context_tokens`: what the model takes at most; None if nobody knows."""
        self._renderer = renderer
        self._client = client
        self._context_tokens = context_tokens

    async def __call__(self, comparison: Comparison) -> Judgment:
        """Raises `InputError` where the family cannot write the messages or the model cannot take as many tokens, and
        `ServiceError` without logprobs.
        """
        return await _in_both_orders(comparison, self._probabilities)

    async def _probabilities(self, comparison: Comparison) -> Sequence[float]:
        prompt = self._renderer.build_prompt(comparison)
        if self._context_tokens is not None and len(prompt) >= self._context_tokens:
            raise InputError(
                f"a prompt with its two answers has {len(prompt):,} tokens, and the preference model takes "
                f"{self._context_tokens:,} with its label; compare shorter answers"
            )
        asked = [tinker.ModelInput.from_ints([*prompt, token]) for token in self._renderer.label_tokens]
        answered = await asyncio.gather(*(self._client.compute_logprobs(each) for each in asked))
        logprobs = [each[-1] for each in answered]
        found = [logprob for logprob in logprobs if logprob is not None and not math.isnan(logprob)]
        if len(found) < len(LABELS):
            raise ServiceError("the preference model gave no logprobs of its labels; they are all that it is asked for")
        highest = max(found)
        weights = [math.exp(logprob - highest) for logprob in found]
        return [weight / sum(weights) for weight in weights]


class CompleterPreferenceModel:
    """Any model that answers messages, asked in words, in both orders; it says A, B or Tie and no probabilities."""

    def __init__(self, complete: AskMessages) -> None:
        self._complete = complete

    async def __call__(self, comparison: Comparison) -> Judgment:
        """Raises `InputError` where the answer is none of the three."""
        return await _in_both_orders(comparison, self._verdict)

    async def _verdict(self, comparison: Comparison) -> Sequence[float]:
        prompt = "\n".join(f"{message['role']}: {text_of(message)}" for message in comparison.prompt)
        first, second = (_text(said) for said in (comparison.completion_a, comparison.completion_b))
        said = text_of(
            await self._complete([{"role": "user", "content": _ASK.format(prompt=prompt, a=first, b=second)}])
        )
        verdict = _VERDICT.match(said.strip())
        if verdict is None:
            raise InputError(f"the preference model answered {said[:_SHOWN_CHARACTERS]!r}; it must say A, B or Tie")
        chosen = verdict["label"] or verdict["tie"]
        return [float(label.lower() == chosen.lower()) for label in LABELS]


async def _in_both_orders(
    comparison: Comparison, probabilities: Callable[[Comparison], Awaitable[Sequence[float]]]
) -> Judgment:
    given, other = await asyncio.gather(probabilities(comparison), probabilities(in_other_order(comparison)))
    scores = (given[0] - given[1], other[1] - other[0])
    return Judgment(
        a=(given[0] + other[1]) / 2,
        b=(given[1] + other[0]) / 2,
        tie=(given[2] + other[2]) / 2,
        position_bias=(scores[0] - scores[1]) / 2,
        is_order_dependent=scores[0] * scores[1] < 0,
    )


def _text(said: Sequence[Message]) -> str:
    return "\n".join(text_of(message) for message in said)
