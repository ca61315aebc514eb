"""Choice of the messages of a conversation that are trained on."""

from collections.abc import Sequence
from enum import StrEnum

from cookhouse.chat.messages import Message
from cookhouse.errors import InputError


class TrainOnWhat(StrEnum):
    """Messages that carry weight in a supervised example. The end token of a message goes with it."""

    LAST_ASSISTANT_MESSAGE = "last_assistant_message"
    LAST_ASSISTANT_TURN = "last_assistant_turn"
    """Every assistant message since the last user message before the final answer: tool calls and the answer."""
    ALL_ASSISTANT_MESSAGES = "all_assistant_messages"
    ALL_MESSAGES = "all_messages"
    ALL_TOKENS = "all_tokens"
    """All messages and their headers; only a beginning-of-sequence token is not trained."""
    ALL_USER_AND_SYSTEM_MESSAGES = "all_user_and_system_messages"
    CUSTOMIZED = "customized"
    """Messages whose `trainable` is true; every message must say, and in no other mode may one. In all other modes an
    answer whose `weight` is 0 is left out."""


def trained_messages(messages: Sequence[Message], train_on_what: TrainOnWhat) -> list[bool]:
    """For each message whether its output is trained.

    Raises:
        InputError: `trainable` is missing from a message in mode `customized`, or present in another mode, or the
            `weight` of a message says otherwise.
    """
    chosen = _chosen(messages, train_on_what)
    left_out = [message.get("weight") == 0 for message in messages]
    if train_on_what == TrainOnWhat.CUSTOMIZED:
        for index, (is_chosen, is_left_out) in enumerate(zip(chosen, left_out, strict=True)):
            if is_chosen and is_left_out:
                raise InputError(f"message {index + 1} has weight 0 and trainable true; keep one of them")
    return [is_chosen and not is_left_out for is_chosen, is_left_out in zip(chosen, left_out, strict=True)]


def _chosen(messages: Sequence[Message], train_on_what: TrainOnWhat) -> list[bool]:
    customized = train_on_what == TrainOnWhat.CUSTOMIZED
    for index, message in enumerate(messages):
        if customized and "trainable" not in message:
            raise InputError(
                f"message {index + 1} lacks trainable, which train_on_what=customized needs on every message"
            )
        if not customized and "trainable" in message:
            raise InputError(
                f"message {index + 1} carries trainable, which train_on_what={train_on_what} would ignore; "
                "use train_on_what=customized, or remove it"
            )
    roles = [message["role"] for message in messages]
    last = max((index for index, role in enumerate(roles) if role == "assistant"), default=-1)
    match train_on_what:
        case TrainOnWhat.LAST_ASSISTANT_MESSAGE:
            return [index == last for index in range(len(roles))]
        case TrainOnWhat.LAST_ASSISTANT_TURN:
            asked = max((index for index in range(last) if roles[index] in ("user", "system")), default=-1)
            return [role == "assistant" and asked < index for index, role in enumerate(roles)]
        case TrainOnWhat.ALL_ASSISTANT_MESSAGES:
            return [role == "assistant" for role in roles]
        case TrainOnWhat.ALL_MESSAGES | TrainOnWhat.ALL_TOKENS:
            return [True] * len(roles)
        case TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES:
            return [role in ("user", "system") for role in roles]
        case TrainOnWhat.CUSTOMIZED:
            return [message["trainable"] for message in messages]
