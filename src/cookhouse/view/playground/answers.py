"""Answers of one or two weights to a question, as events: the rendered prompt, tokens as they come, and where answers
first differ.

    note        text: what is waited for
    prompt      of a side: its weights, its base model, and the tokens that it is asked
    tokens      of a side: what it has said further
    difference  at: the first token, counted from 0, in which both sides differ
    end         of a side: what it has said in all, with a note if it did not end by itself
    error       of a side, or of all (side null)
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from cookhouse.errors import CookhouseError, ServiceError
from cookhouse.service.sampling.chat_model import ChatModel
from cookhouse.service.sampling.target import Target
from cookhouse.view.playground.question import Question
from cookhouse.view.playground.shared_service import SharedService

if TYPE_CHECKING:
    from tinker import ModelInput

    from cookhouse.chat import Encoder, Message

Event: TypeAlias = Mapping[str, Any]
Emit: TypeAlias = Callable[[Event], None]
_MAX_PROMPT_TOKENS: Final = 2048
"""Shown of a prompt: half from its beginning, half from its end."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Answer of one of the weights."""

    weights: str
    model: str | None
    message: "Message"


async def ask(
    question: Question, targets: Sequence[Target], service: SharedService, emit: Emit
) -> list[Answered] | None:
    """Ask all weights at the same time. None: one did not come to the end of its answer, and its `error` says why."""
    difference = Difference(emit, are_ids=len({target.model_name for target in targets}) == 1)
    try:
        async with service.models(targets, question.draw, lambda text: emit({"type": "note", "text": text})) as models:
            sides = [
                _Side(number=number, question=question, model=model, target=target, emit=emit, difference=difference)
                for number, (model, target) in enumerate(zip(models, targets, strict=True))
            ]
            answers = await asyncio.gather(*(side.answer() for side in sides))
            if any(side.has_failed for side in sides):
                service.doubt()
    except Exception as error:
        emit({"type": "error", "side": None, "text": _words(error)})
        return None
    said = [each for each in answers if each is not None]
    return said if len(said) == len(targets) else None


@dataclass(kw_only=True)
class _Side:
    number: int
    question: Question
    model: ChatModel
    target: Target
    emit: Emit
    difference: "Difference"
    has_failed: bool = False
    """Whether it was the service that failed."""

    async def answer(self) -> Answered | None:
        try:
            return await self._answer()
        except Exception as error:
            self.has_failed = isinstance(error, ServiceError)
            self._tell("error", text=_words(error))
            return None

    async def _answer(self) -> Answered:
        from cookhouse.training import service_errors

        renderer = self.model.renderer
        prompt, stops = self._prompt()
        asked = prompt.to_ints()
        shown = _cut(ShownTokens(renderer.encoder).feed(asked))
        self._tell("prompt", model=self.target.model_name, num_tokens=len(asked), **shown)
        said = ShownTokens(renderer.encoder)
        tokens: list[int] = []
        reason = "length"
        with service_errors("sampling"):
            async for piece in self.model.sampled(prompt, stops, seed=self.question.seed):
                tokens += piece.tokens
                reason = piece.stop_reason
                more = said.feed(piece.tokens, piece.logprobs)
                self._tell("tokens", tokens=more)
                self.difference.say(self.number, more)
        self.difference.end(self.number)
        message, note = self._read(prompt, tokens, said.text, reason)
        self._tell("end", num_tokens=len(tokens), note=note, **_parts(message))
        return Answered(weights=self.target.label, model=self.target.model_name, message=message)

    def _prompt(self) -> "tuple[ModelInput, list[str] | list[int]]":
        import tinker

        renderer = self.model.renderer
        if self.question.is_chat:
            return renderer.build_generation_prompt(self.question.messages), renderer.get_stop_sequences()
        tokens = renderer.encoder.tokenizer.encode(self.question.prompt, add_special_tokens=True)
        return tinker.ModelInput.from_ints(tokens), []

    def _read(
        self, prompt: "ModelInput", tokens: Sequence[int], text: str, reason: str
    ) -> "tuple[Message, str | None]":
        """The answer, and what a person should know of how it ended."""
        if self.question.is_chat:
            answer = self.model.read(prompt, tokens)
            return answer.message, f"{answer.note} (max tokens)" if answer.is_full else answer.note
        note = None if reason == "stop" else f"the text is cut at {len(tokens):,} tokens"
        return {"role": "assistant", "content": text}, note

    def _tell(self, kind: str, **values: Any) -> None:
        self.emit({"type": kind, "side": self.number, **values})


@dataclass(kw_only=True)
class Difference:
    """Tells once where the tokens of two sides first differ: by their ids, or by their texts where two base models have
    ids of their own.
    """

    emit: Emit = field(kw_only=False)
    are_ids: bool
    said: tuple[list[object], list[object]] = field(default_factory=lambda: ([], []))
    have_ended: set[int] = field(default_factory=set)
    num_alike: int = 0
    is_told: bool = False

    def say(self, side: int, tokens: Sequence[Mapping[str, Any]]) -> None:
        self.said[side].extend(token["id"] if self.are_ids else token["text"] for token in tokens)
        self._compare()

    def end(self, side: int) -> None:
        self.have_ended.add(side)
        self._compare()

    def _compare(self) -> None:
        if self.is_told:
            return
        shorter = min(map(len, self.said))
        while self.num_alike < shorter and self.said[0][self.num_alike] == self.said[1][self.num_alike]:
            self.num_alike += 1
        has_ended = any(len(self.said[side]) == self.num_alike < len(self.said[1 - side]) for side in self.have_ended)
        if self.num_alike < shorter or has_ended:
            self.is_told = True
            self.emit({"type": "difference", "at": self.num_alike})


def _parts(message: "Message") -> dict[str, str]:
    from cookhouse.chat import thinking_of, turn_text

    return {"thinking": thinking_of(message), "text": turn_text(message)}


def _cut(tokens: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tokens that are shown of a prompt, and how many are left out in their middle."""
    num_left_out = max(0, len(tokens) - _MAX_PROMPT_TOKENS)
    half = _MAX_PROMPT_TOKENS // 2
    kept = [*tokens[:half], *tokens[-half:]] if num_left_out else [*tokens]
    return {"tokens": kept, "num_left_out": num_left_out, "left_out_at": half if num_left_out else None}


def _words(error: Exception) -> str:
    if isinstance(error, CookhouseError | OSError):
        return str(error)
    _log.error("an answer of the playground failed", exc_info=error)
    return f"it failed ({type(error).__name__}); where this page is served, the terminal shows why"


class ShownTokens:
    """Gives tokens their texts as they come. A character of several tokens stands at the last of them."""

    def __init__(self, encoder: "Encoder") -> None:
        from cookhouse.chat import GrowingText

        self._encoder = encoder
        self._special = {*encoder.added.values()}
        self._growing = GrowingText(encoder)
        self._num_given = 0
        self.text = ""
        """Of all that are not special."""

    def feed(self, tokens: Sequence[int], logprobs: Sequence[float] | None = None) -> list[dict[str, Any]]:
        """The next tokens as plain values."""
        given = logprobs if logprobs is not None else [None] * len(tokens)
        return [self._shown(int(token), logprob) for token, logprob in zip(tokens, given, strict=True)]

    def _shown(self, token: int, logprob: float | None) -> dict[str, Any]:
        from cookhouse.chat import UNFINISHED, GrowingText

        is_special = token in self._special
        if is_special:
            text = self._encoder.decode([token])
            self._growing, self._num_given = GrowingText(self._encoder), 0
        else:
            self._growing.add(token)
            whole = self._growing.text
            text = "" if whole.endswith(UNFINISHED) else whole[self._num_given :]
            self._num_given += len(text)
            self.text += text
        return {
            "id": token,
            "text": text,
            "is_special": is_special,
            "logprob": None if logprob is None else round(float(logprob), 4),
        }
