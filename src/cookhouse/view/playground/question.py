"""Questions asked on the page, checked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cookhouse.errors import InputError
from cookhouse.service.sampling.chat_model import SamplingOptions

if TYPE_CHECKING:
    from cookhouse.chat import Message

MAX_CHARACTERS: Final = 20_000
"""Of a prompt, and of a system message."""
MAX_TOKENS: Final = 4096
_MAX_NAME: Final = 500
_MAX_TEMPERATURE: Final = 10
_MAX_SEED: Final = 2**31 - 1
_FORMS: Final = ("chat", "text")
_KEYS: Final = ("weights", "form", "prompt", "system", "seed", "temperature", "max_tokens")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A prompt for one or two weights, and how answers are drawn."""

    weights: tuple[str, ...]
    prompt: str
    is_chat: bool = True
    """Whether the prompt is a user's message; else a text to go on with, without a chat format."""
    system: str = ""
    seed: int = 0
    temperature: float = 0.7
    max_tokens: int = 256

    @property
    def messages(self) -> "list[Message]":
        """The question, as a conversation."""
        system: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.prompt}]

    @property
    def draw(self) -> SamplingOptions:
        """Sampling parameters of answers."""
        return SamplingOptions(max_tokens=self.max_tokens, temperature=self.temperature, top_p=1.0, seed=self.seed)


def question_from(body: object) -> Question:
    """Read the question that a page or a program asks.

    Raises:
        InputError: a value is missing or cannot be one, or a key is unknown.
    """
    if not isinstance(body, Mapping):
        raise InputError("a question is a JSON object")
    if unknown := sorted(set(body) - set(_KEYS)):
        raise InputError(f"a question has no {unknown[0]!r}; it has {', '.join(_KEYS)}")
    form = body.get("form", "chat")
    if form not in _FORMS:
        raise InputError(f"form is {form!r}; it is {' or '.join(_FORMS)}")
    question = Question(
        weights=_names(body.get("weights")),
        prompt=_text(body, "prompt"),
        is_chat=form == "chat",
        system=_text(body, "system"),
        seed=int(_number(body, "seed", 0, 0, _MAX_SEED, is_whole=True)),
        temperature=_number(body, "temperature", Question.temperature, 0, _MAX_TEMPERATURE),
        max_tokens=int(_number(body, "max_tokens", Question.max_tokens, 1, MAX_TOKENS, is_whole=True)),
    )
    if not question.prompt.strip():
        raise InputError("the prompt is empty; write what is to be asked")
    if question.system and not question.is_chat:
        raise InputError("a text to go on with has no system message; ask as a chat, or leave it out")
    return question


def _names(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else []
    if not 1 <= len(names) <= 2 or not all(isinstance(name, str) and 0 < len(name) <= _MAX_NAME for name in names):
        raise InputError("weights is a list of one or two names: a run, a checkpoint, a registered or a base model")
    return tuple(names)


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name, "")
    if not isinstance(value, str):
        raise InputError(f"{name} is text, not {type(value).__name__}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{name} holds half a character (a lone surrogate); remove it")
    if len(value) > MAX_CHARACTERS:
        raise InputError(f"{name} has {len(value):,} characters, and {MAX_CHARACTERS:,} are the most; shorten it")
    return value


def _number(
    body: Mapping[str, Any], name: str, default: float, least: float, most: float, *, is_whole: bool = False
) -> float:
    value = body.get(name, default)
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_one or not least <= value <= most or (is_whole and value != int(value)):
        kind = "a whole number" if is_whole else "a number"
        raise InputError(f"{name} is {kind} from {least:g} to {most:,}, not {value!r:.50}")
    return float(value)
