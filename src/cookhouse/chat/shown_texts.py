"""Messages as text for people to read."""

import json
from typing import Any

from cookhouse.chat.messages import Message


def shown_text(message: Message) -> str:
    """As `text_of`, for people to read: `[image]` stands for an image."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(
        part["text"] if part["type"] == "text" else "[image]" for part in content if part["type"] != "thinking"
    )


def turn_text(message: Message) -> str:
    """As `shown_text`, with the calls of tools below it."""
    calls = [call["function"] for call in message.get("tool_calls", ())]
    called = [f"{call['name']}({_arguments_text(call['arguments'])})" for call in calls]
    unread = [call["text"] for call in message.get("unparsed_tool_calls", ())]
    return "\n".join(filter(None, [shown_text(message), *called, *unread]))


def _arguments_text(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
