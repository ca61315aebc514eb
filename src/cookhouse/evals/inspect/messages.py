"""Messages, tools and answers, from Inspect AI's form to ours and back."""

import json
import uuid
from collections.abc import Sequence
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    Content,
    ContentImage,
    ContentReasoning,
    ContentText,
)
from inspect_ai.tool import ToolCall, ToolInfo

from cookhouse.chat import FunctionCall, Message, parse_messages, text_of, thinking_of
from cookhouse.chat import ToolCall as OurToolCall
from cookhouse.errors import InputError


def to_messages(messages: Sequence[ChatMessage]) -> list[Message]:
    """A conversation as renderers take it. Raises `InputError` for audio, video and documents."""
    return parse_messages([_message(message) for message in messages])


def to_schemas(tools: Sequence[ToolInfo]) -> list[dict[str, Any]]:
    """Declarations of tools, as a message's `tools` hold it."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters.model_dump(exclude_none=True),
            },
        }
        for tool in tools
    ]


def to_answer(message: Message, model: str) -> ChatMessageAssistant:
    """An assistant's message with its reasoning and its calls; one that nobody can read says why."""
    calls = [_to_call(call) for call in message.get("tool_calls", ())]
    for broken in message.get("unparsed_tool_calls", ()):
        calls.append(ToolCall(id=_new_id(), function="unknown", arguments={}, parse_error=broken["error"]))
    text, thinking = text_of(message), thinking_of(message)
    content: str | list[Content] = text
    if thinking:
        content = [ContentReasoning(reasoning=thinking), ContentText(text=text)]
    return ChatMessageAssistant(content=content, tool_calls=calls or None, model=model, source="generate")


def to_shown(asked: str | list[ChatMessage]) -> list[Message]:
    """Prompt of a sample, as text."""
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}]
    return [{"role": message.role, "content": message.text} for message in asked]


def said_after(messages: Sequence[ChatMessage]) -> str:
    """Messages from the model's first one on: that, or all the turns with what tools gave."""
    start = next((n for n, message in enumerate(messages) if message.role == "assistant"), len(messages))
    turns = [(message.role, "\n".join(filter(None, [message.text, *_called(message)]))) for message in messages[start:]]
    if len(turns) == 1:
        return turns[0][1]
    return "\n".join(f"{role}: {text}" for role, text in turns)


def _called(message: ChatMessage) -> list[str]:
    calls = message.tool_calls or () if isinstance(message, ChatMessageAssistant) else ()
    return [f"→ {call.function}({json.dumps(call.arguments)})" for call in calls]


def _message(message: ChatMessage) -> dict[str, Any]:
    content = message.content if isinstance(message.content, str) else [_part(part) for part in message.content]
    ours: dict[str, Any] = {"role": message.role, "content": content}
    if isinstance(message, ChatMessageAssistant) and message.tool_calls:
        ours["tool_calls"] = [_from_call(call) for call in message.tool_calls]
    if isinstance(message, ChatMessageTool):
        ours["content"] = f"error: {message.error.message}" if message.error else message.text
        ours |= {key: value for key, value in _of_tool(message).items() if value is not None}
    return ours


def _of_tool(message: ChatMessageTool) -> dict[str, str | None]:
    return {"tool_call_id": message.tool_call_id, "name": message.function}


def _part(part: Content) -> dict[str, Any]:
    if isinstance(part, ContentText):
        return {"type": "text", "text": part.text}
    if isinstance(part, ContentReasoning):
        return {"type": "thinking", "thinking": part.reasoning}
    if isinstance(part, ContentImage):
        return {"type": "image", "image": part.image}
    raise InputError(f"a message holds {part.type}; models of cookhouse take text and images")


def _from_call(call: ToolCall) -> OurToolCall:
    return OurToolCall(type="function", id=call.id, function=FunctionCall(name=call.function, arguments=call.arguments))


def _to_call(call: OurToolCall) -> ToolCall:
    arguments, error = call["function"]["arguments"], None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as problem:
            arguments, error = {}, f"the arguments are not JSON: {problem}"
    if not isinstance(arguments, dict):
        arguments, error = {}, "the arguments are no object"
    return ToolCall(
        id=call.get("id") or _new_id(), function=call["function"]["name"], arguments=arguments, parse_error=error
    )


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:12]}"
