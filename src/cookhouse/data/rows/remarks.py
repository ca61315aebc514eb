"""Remarks on what is trained on and may not be meant: counted, a sentence each with the first row as an example."""

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from cookhouse.chat import (
    Message,
    TrainOnWhat,
    begins_inside,
    is_left_open,
    trained_messages,
)
from cookhouse.data.rows.empty import is_empty_answer
from cookhouse.data.rows.pairs import PreferenceRow
from cookhouse.data.rows.shapes import Conversation
from cookhouse.data.values import LeftOut
from cookhouse.errors import InputError
from cookhouse.telemetry import ResultNote


class Read(Protocol):
    """A row of any kind, and what of it was left out."""

    @property
    def left_out(self) -> Sequence[LeftOut]: ...


def conversation_remarks(
    conversations: Sequence[Conversation], train_on_what: TrainOnWhat, *, what: str = "conversations"
) -> list[str]:
    """Of conversations that are trained on; `what` is what messages call all of them."""
    empty, unanswered, texts = [], [], []
    for conversation in conversations:
        messages = conversation.messages
        trained = _trained(messages, train_on_what)
        if conversation.text is not None:
            texts.append(conversation.source)
        elif any(is_trained and is_empty_answer(each) for each, is_trained in zip(messages, trained, strict=True)):
            empty.append(conversation.source)
        if messages and messages[-1]["role"] == "user" and not trained[-1]:
            unanswered.append(conversation.source)
    return [
        *_remark(empty, len(conversations), f"{what} have an empty answer, of which the end alone is trained on"),
        *_remark(unanswered, len(conversations), f"{what} end with a message of the user, which is not trained on"),
        *_remark(texts, len(conversations), f"{what} are plain text, trained on as it stands, without the chat format"),
        *_reasoning_remarks([(each.source, each.messages) for each in conversations], what),
        *null_remarks(conversations, what=what),
    ]


def pair_remarks(rows: Sequence[PreferenceRow], *, what: str = "pairs") -> list[str]:
    """Of pairs that are trained on. One whose whole answer is empty is refused where it is read."""
    empty = [row.source for row in rows if any(map(is_empty_answer, chain(row.chosen, row.rejected)))]
    return [
        *_remark(empty, len(rows), f"{what} have an answer with an empty turn, of which the end alone is trained on"),
        *_reasoning_remarks([(row.source, [*row.chosen, *row.rejected]) for row in rows], what),
        *null_remarks(rows, what=what),
    ]


def null_remarks(rows: Sequence[Read], *, what: str) -> list[str]:
    """Remark that nulls were left out of calls and tools; empty where there were none."""
    found = {each.place: each for row in rows for each in row.left_out}  # single answers may be in several pairs
    if not found:
        return []
    first, count = next(iter(found.values())), sum(each.count for each in found.values())
    return [
        ResultNote(
            f"{count:,} arguments of calls and keys of tools are null, as a table fills up what a row lacks, and are "
            f"left out of {len(found):,} {what}; the first is {first.place}, {first.first}"
        )
    ]


def _reasoning_remarks(said: Sequence[tuple[str, Sequence[Message]]], what: str) -> list[str]:
    inside = [source for source, messages in said if any(begins_inside(text) for text in _answers(messages))]
    unclosed = [source for source, messages in said if any(is_left_open(text) for text in _answers(messages))]
    return [
        *_remark(
            inside, len(said), f"{what} have an answer with </think> alone; what is before it is read as reasoning"
        ),
        *_remark(unclosed, len(said), f"{what} have an answer that opens <think> and never closes it, read as text"),
    ]


def _answers(messages: Sequence[Message]) -> list[str]:
    return [m["content"] for m in messages if m["role"] == "assistant" and isinstance(m["content"], str)]


def _trained(messages: Sequence[Message], train_on_what: TrainOnWhat) -> Sequence[bool]:
    try:
        return trained_messages(messages, train_on_what)
    except InputError:  # a bad row, which is reported where it is rendered
        return [False] * len(messages)


def _remark(sources: Sequence[str], num_all: int, says: str) -> list[str]:
    return [ResultNote(f"{len(sources):,} of {num_all:,} {says}; the first is {sources[0]}")] if sources else []
