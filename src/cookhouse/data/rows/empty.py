"""Answers without text, which teach a model to say nothing."""

from collections.abc import Sequence
from dataclasses import replace

from cookhouse.chat import Message, TrainOnWhat, text_of, thinking_of, trained_messages
from cookhouse.data.rows.shapes import Conversation
from cookhouse.telemetry import ResultNote


def is_empty_answer(message: Message) -> bool:
    """True of an answer without text, reasoning and calls of tools."""
    if message["role"] != "assistant" or message.get("tool_calls") or message.get("unparsed_tool_calls"):
        return False
    return not text_of(message).strip() and not thinking_of(message).strip()


def without_empty_answers(conversation: Conversation, train_on_what: TrainOnWhat) -> Conversation | None:
    """The conversation with its empty answers left out of the loss; None if nothing is left of it to train on. In mode
    `customized` each message says itself what it is for.
    """
    messages = conversation.messages
    if train_on_what == TrainOnWhat.CUSTOMIZED or not any(map(is_empty_answer, messages)):
        return conversation
    marked: list[Message] = [{**each, "weight": 0} if is_empty_answer(each) else each for each in messages]
    has_more = any(trained_messages(marked, train_on_what))
    return replace(conversation, messages=marked) if has_more else None


def left_untrained(
    conversations: Sequence[Conversation], train_on_what: TrainOnWhat, *, what: str = "conversations"
) -> tuple[list[Conversation], list[str]]:
    """The conversations as `without_empty_answers` gives them, and remarks on how many had such answers."""
    pairs = [(each, without_empty_answers(each, train_on_what)) for each in conversations]
    kept = [made for _, made in pairs if made is not None]
    dropped = [each.source for each, made in pairs if made is None]
    marked = [each.source for each, made in pairs if made is not None and made is not each]
    return kept, [
        ResultNote(f"{len(sources):,} of {len(pairs):,} {what} {says}; the first is {sources[0]}")
        for sources, says in (
            (dropped, "have no answer but an empty one, and are not trained on (empty_answers=skip)"),
            (marked, "have an empty answer among others, which is not trained on (empty_answers=skip)"),
        )
        if sources
    ]
