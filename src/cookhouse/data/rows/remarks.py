"""What is trained on and may not be meant: counted, and told in a sentence each with the first row as an example."""

from collections.abc import Sequence
from itertools import chain

from cookhouse.chat import Message, TrainOnWhat, text_of, thinking_of, trained_messages
from cookhouse.data.rows.pairs import PreferenceRow
from cookhouse.data.rows.shapes import Conversation
from cookhouse.errors import InputError


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
        elif any(is_trained and _is_empty(each) for each, is_trained in zip(messages, trained, strict=True)):
            empty.append(conversation.source)
        if messages and messages[-1]["role"] == "user" and not trained[-1]:
            unanswered.append(conversation.source)
    return [
        *_remark(empty, len(conversations), f"{what} have an empty answer, of which the end alone is trained on"),
        *_remark(unanswered, len(conversations), f"{what} end with a message of the user, which is not trained on"),
        *_remark(texts, len(conversations), f"{what} are plain text, trained on as it stands, without the chat format"),
    ]


def pair_remarks(rows: Sequence[PreferenceRow], *, what: str = "pairs") -> list[str]:
    """Of pairs that are trained on. One whose whole answer is empty is refused where it is read."""
    empty = [row.source for row in rows if any(map(_is_empty, chain(row.chosen, row.rejected)))]
    return _remark(empty, len(rows), f"{what} have an answer with an empty turn, of which the end alone is trained on")


def _trained(messages: Sequence[Message], train_on_what: TrainOnWhat) -> Sequence[bool]:
    try:
        return trained_messages(messages, train_on_what)
    except InputError:  # a bad row, which is told where it is rendered
        return [False] * len(messages)


def _is_empty(message: Message) -> bool:
    if message["role"] != "assistant" or message.get("tool_calls") or message.get("unparsed_tool_calls"):
        return False
    return not text_of(message).strip() and not thinking_of(message).strip()


def _remark(sources: Sequence[str], num_all: int, says: str) -> list[str]:
    return [f"{len(sources):,} of {num_all:,} {says}; the first is {sources[0]}"] if sources else []
