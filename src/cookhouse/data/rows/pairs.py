"""Rows of preferences, of comparisons and of prompts, checked.

A preference is a prompt with a better and a worse continuation: `prompt` (or `conversations`, and others), `chosen`,
`rejected`, each text or messages; or `chosen` and `rejected` alone, whole conversations that differ in their end, as
messages or as text in which turns begin with `Human:` and `Assistant:`. A comparison says which of two it is, or
neither: `prompt` (or `prompt_conversation`), `completion_a`, `completion_b` and `label` A, B or Tie, on the row or
under `comparison`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cookhouse.chat import MEDIA_KEYS, Comparison, Label, Message, is_empty, text_of
from cookhouse.data.parsing import BadRows, parse_each
from cookhouse.data.rows.conversations import iter_rows
from cookhouse.data.rows.names import COMPARISONS, PREFERENCES, PROMPTS, in_our_case, offer
from cookhouse.data.rows.reader import BESIDE, MATERIAL, RowReader
from cookhouse.data.rows.shapes import REFUSED, conversation_from_row, is_conversation
from cookhouse.data.sources.source import DataSource, data_source
from cookhouse.data.values import LeftOut
from cookhouse.errors import InputError

T = TypeVar("T")

_LABELS: Mapping[str, Label] = {"a": "A", "b": "B", "tie": "Tie"}
_PROMPTS = ("prompt", "prompt_conversation", "conversations", "question", "instruction", "problem")
NAMES = ("chosen", "rejected", "comparison", "completion_a", "completion_b", "completion_A", "completion_B", "label")
"""Fields that tell rows of two answers from others."""
_IN_WORDS = "images are trained on by supervised alone: say in words what is to be seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRow:
    """A prompt, and two continuations of it, of which one is preferred. Neither continuation is empty."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    source: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[LeftOut] = ()
    rejected_prompt: list[Message] | None = None
    """What `rejected` answers, where answers were judged one by one, each to a prompt of its own."""

    @property
    def prompts(self) -> tuple[list[Message], ...]:
        """The prompts: one, or that of each answer."""
        return (self.prompt,) if self.rejected_prompt is None else (self.prompt, self.rejected_prompt)

    @property
    def differs_in_last_turn(self) -> bool:
        """True if both answers are one turn, to the same prompt."""
        return self.rejected_prompt is None and len(self.chosen) == len(self.rejected) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow(Comparison):
    """A prompt, two continuations of it, and which is better."""

    label: Label
    source: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[LeftOut] = ()

    @property
    def prompts(self) -> tuple[list[Message], ...]:
        """The prompt."""
        return (self.prompt,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """A prompt to answer, and what its answer is graded by, if the row says."""

    prompt: list[Message]
    answer: str | None
    source: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[LeftOut] = ()

    @property
    def prompts(self) -> tuple[list[Message], ...]:
        """The prompt."""
        return (self.prompt,)


def read_preferences(given: str | os.PathLike[str] | DataSource, *, bad: BadRows | None = None) -> list[PreferenceRow]:
    """The preferences of a source. Raises as `read_conversations`."""
    return _read(given, preference_from_row, "preferences", bad)


def read_comparisons(given: str | os.PathLike[str] | DataSource, *, bad: BadRows | None = None) -> list[ComparisonRow]:
    """The comparisons of a source. Raises as `read_conversations`."""
    return _read(given, comparison_from_row, "comparisons", bad)


def read_prompts(given: str | os.PathLike[str] | DataSource, *, bad: BadRows | None = None) -> list[PromptRow]:
    """The prompts of a source. Raises as `read_conversations`."""
    return _read(given, prompt_from_row, "prompts", bad)


def preference_from_row(row: object, source: str) -> PreferenceRow:
    """A preference from one row. Raises `InputError` as `source: reason`."""
    row = in_our_case(row, NAMES)

    def parse(fields: Mapping[str, Any], reader: RowReader) -> PreferenceRow:
        _need(fields, ("chosen", "rejected"), "a preference", PREFERENCES)
        chosen, rejected = (said_in(reader, name, "assistant") for name in ("chosen", "rejected"))
        asked = asked_in(reader, fields)
        if not asked:
            shared = _num_shared(chosen, rejected)
            asked, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
        else:
            # Sets on the hub repeat the prompt in both.
            bare = [message for message in asked if message["role"] != "system"]
            chosen, rejected = (_behind(bare, said) for said in (chosen, rejected))
        for name, said in (("chosen", chosen), ("rejected", rejected)):
            if not asked or not said or said[-1]["role"] != "assistant":
                raise InputError(f"{name} must be an answer of the assistant to a prompt that both have")
        if chosen == rejected:
            raise InputError("chosen and rejected are the same; nothing could be learned from them")
        return PreferenceRow(
            prompt=reader.opened(asked),
            chosen=chosen,
            rejected=rejected,
            source=source,
            extra=_extra(fields, reader),
            left_out=reader.left_out(source),
        )

    return named_row(row, source, parse)


def comparison_from_row(row: object, source: str) -> ComparisonRow:
    """A comparison from one row; a preference is one whose label is A. Raises `InputError` as `source: reason`."""
    row = in_our_case(row, NAMES)
    if isinstance(row, Mapping) and _is_preference(row):
        pair = preference_from_row(row, source)
        return ComparisonRow(
            prompt=pair.prompt,
            completion_a=pair.chosen,
            completion_b=pair.rejected,
            label="A",
            source=source,
            extra=pair.extra,
            left_out=pair.left_out,
        )

    def parse(fields: Mapping[str, Any], outer: RowReader) -> ComparisonRow:
        nested = fields.get("comparison")
        within = {name.lower(): value for name, value in (nested if isinstance(nested, Mapping) else fields).items()}
        within = {**{name: fields[name] for name in BESIDE if name in fields}, **within}
        reader = RowReader(within)
        _need(within, ("completion_a", "completion_b"), "a comparison", COMPARISONS)
        label = _LABELS.get(str(fields.get("label")).lower())
        if label is None:
            raise InputError(f"label must be A, B or Tie, not {fields.get('label')!r}")
        asked = asked_in(reader, within)
        if not asked:
            raise InputError(f"a comparison needs a prompt; this row has {_names(within)}")
        first, second = (said_in(reader, name, "assistant") for name in ("completion_a", "completion_b"))
        outer.used |= reader.used
        used = (*_PROMPTS, "completion_A", "completion_B", "label", "comparison")
        return ComparisonRow(
            prompt=reader.opened(asked),
            completion_a=first,
            completion_b=second,
            label=label,
            source=source,
            extra=_extra(fields, reader, *used),
            left_out=reader.left_out(source),
        )

    return named_row(row, source, parse)


def prompt_from_row(row: object, source: str) -> PromptRow:
    """A prompt from one row: `prompt`, `question`, `instruction` or `problem`, or `messages` that end with the user.

    Raises:
        InputError: `source: reason`.
    """
    row = in_our_case(row, (*_PROMPTS, "messages"))

    def parse(fields: Mapping[str, Any], reader: RowReader) -> PromptRow:
        is_listed = not is_empty(fields.get("messages"))
        asked = said_in(reader, "messages", "user") if is_listed else asked_in(reader, fields)
        if not asked:
            raise InputError(
                f"a prompt needs {', '.join(_PROMPTS)} or messages; this row has {_names(fields)}",
                way_out=offer([*map(str, fields)], PROMPTS),
            )
        if asked[-1]["role"] == "assistant":
            raise InputError("the prompt ends with an answer of the assistant; it must end with what is asked")
        answer = fields.get("answer")
        if isinstance(answer, bool) or not isinstance(answer, str | int | float | None):
            raise InputError(f"answer must be text or a number, not {type(answer).__name__}")
        return PromptRow(
            prompt=reader.opened(asked),
            answer=None if answer is None else str(answer),
            source=source,
            extra=_extra(fields, reader, "messages", "answer", *_PROMPTS),
            left_out=reader.left_out(source),
        )

    return named_row(row, source, parse)


def question_from_row(row: object, source: str) -> PromptRow:
    """Prompt of a row, as `prompt_from_row` reads it; or a conversation, whose answer is what the assistant says
    last.

    Raises:
        InputError: `source: reason`.
    """
    if not isinstance(row, Mapping) or not is_conversation(row):
        return prompt_from_row(row, source)
    conversation = conversation_from_row(row, source)
    try:
        *asked, last = _of_text(conversation.messages)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    answer = None if last["role"] != "assistant" else text_of(last)
    if answer is None:
        asked = conversation.messages
    elif not asked:
        raise InputError(f"{source}: an assistant message has no user message before it")
    return PromptRow(
        prompt=asked, answer=answer, source=source, extra=conversation.extra, left_out=conversation.left_out
    )


def read_questions(given: str | os.PathLike[str] | DataSource, *, bad: BadRows | None = None) -> list[PromptRow]:
    """Read the prompts of a source's rows. Raises as `read_conversations`."""
    return _read(given, question_from_row, "prompts", bad)


def _read(
    given: str | os.PathLike[str] | DataSource, parse: Callable[[object, str], T], what: str, bad: BadRows | None
) -> list[T]:
    source = data_source(given)
    read = parse_each(iter_rows(source), lambda row: parse(row.value(), row.place), bad)
    if not read:
        raise InputError(f"{source} holds no {what}; it needs at least one row")
    return read


def named_row(row: object, source: str, parse: Callable[[Mapping[str, Any], RowReader], T]) -> T:
    """Result of `parse` for a row's fields. Raises `InputError` as `source: reason`."""
    try:
        if not isinstance(row, Mapping):
            raise InputError(f"a row must be an object, not {type(row).__name__}")
        reader = RowReader(row)
        parsed = parse(row, reader)
        for name, way_out in REFUSED.items():
            if name not in reader.used and not is_empty(row.get(name)):
                way_out = _IN_WORDS if name in MEDIA_KEYS else way_out
                raise InputError(f"{name} is not read in such a row; {way_out}, or remove it from the rows")
        return parsed
    except InputError as error:
        raise error.at(source) from error


def asked_in(reader: RowReader, fields: Mapping[str, Any]) -> list[Message]:
    """The prompt; empty where the row has none."""
    given = [name for name in _PROMPTS if not is_empty(fields.get(name))]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} both say what is asked; keep one")
    if not given:
        return []
    asked = _of_text(reader.asked(given[0], has_dialog=True))
    if unread := [name for name in MATERIAL if name not in reader.used and not is_empty(fields.get(name))]:
        raise InputError(
            f"{unread[0]} is not read beside {given[0]}; put it into a message, or remove it from the rows"
        )
    return asked


def said_in(reader: RowReader, name: str, role: str) -> list[Message]:
    """Text as one message of a role, or as turns where it begins with one; or messages, of text alone."""
    return _of_text(reader.said(name, role, has_dialog=True))


def _of_text(messages: list[Message]) -> list[Message]:
    """The messages. Raises `InputError` where one holds an image."""
    for number, message in enumerate(messages, start=1):
        if not isinstance(message["content"], str) and any(part["type"] == "image" for part in message["content"]):
            raise InputError(f"message {number} holds an image; {_IN_WORDS}, or remove the row")
    return messages


def _is_preference(row: Mapping[str, Any]) -> bool:
    has_comparison = any(not is_empty(row.get(name)) for name in ("comparison", "completion_a", "completion_A"))
    return "chosen" in row and not (has_comparison and is_empty(row["chosen"]))


def _need(fields: Mapping[str, Any], names: tuple[str, str], what: str, kinds: Sequence[Sequence[str]]) -> None:
    """Raises `InputError` where one of two answers is missing or empty."""
    for name in names:
        if name in fields and is_empty(fields[name]):
            raise InputError(f"{name} is empty; {what} needs two answers")
        if name not in fields:
            raise InputError(
                f"{what} needs {' and '.join(names)}; this row has {_names(fields)}",
                way_out=offer([*map(str, fields)], kinds),
            )


def _num_shared(chosen: Sequence[Message], rejected: Sequence[Message]) -> int:
    pairs = enumerate(zip(chosen, rejected, strict=False))
    shorter = min(len(chosen), len(rejected))
    return min(next((index for index, (one, other) in pairs if one != other), shorter), shorter - 1)


def _behind(asked: Sequence[Message], said: list[Message]) -> list[Message]:
    whole = [message for message in said if message["role"] != "system"]
    return whole[len(asked) :] if len(whole) > len(asked) and whole[: len(asked)] == list(asked) else said


def _extra(fields: Mapping[str, Any], reader: RowReader, *others: str) -> dict[str, Any]:
    used = {*reader.used, *BESIDE, *others}
    return {name: value for name, value in fields.items() if name not in used and not is_empty(value)}


def _names(fields: Mapping[str, Any]) -> str:
    return ", ".join(map(str, fields)) or "nothing"
