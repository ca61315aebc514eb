"""Messages: what a conversation is made of, and the checks that anything from outside passes first."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, cast

from cookhouse.chat.images import data_url
from cookhouse.chat.reasoning import begins_inside, one_reasoning, split_tags
from cookhouse.errors import InputError, UnknownNameError

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


class TextPart(TypedDict):
    type: Literal["text"]
    text: str


class ThinkingPart(TypedDict):
    """Reasoning of the assistant, apart from its answer."""

    type: Literal["thinking"]
    thinking: str


class ImagePart(TypedDict):
    """A PNG or JPEG in a message of a user or a tool; only renderers of models that see take one."""

    type: Literal["image"]
    image: str | bytes
    """A data URL, the path of a file, or the bytes of one, which checking makes a data URL of; nothing else is read."""


Part = TextPart | ThinkingPart | ImagePart


class FunctionCall(TypedDict):
    name: str
    arguments: dict[str, Any] | str
    """An object, or JSON text that is written as it stands."""


class ToolCall(TypedDict):
    type: Literal["function"]
    function: FunctionCall
    id: NotRequired[str]
    place: NotRequired[int]
    """Of a call that the model wrote in its text: the letters and the calls before it. Others stand behind the text."""


class UnparsedToolCall(TypedDict):
    """A call that the assistant wrote and nobody can read: what was written, its marks included, and why."""

    text: str
    error: str
    place: NotRequired[int]
    """As a `ToolCall` has it."""


class Message(TypedDict):
    """One message. `tools` (JSON schemas) stands on a system message and declares them to the model."""

    role: Role
    content: str | list[Part]
    tool_calls: NotRequired[list[ToolCall]]
    unparsed_tool_calls: NotRequired[list[UnparsedToolCall]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]
    tools: NotRequired[list[dict[str, Any]]]
    trainable: NotRequired[bool]
    weight: NotRequired[int]
    """Of an answer: 0 leaves it out of the loss."""


REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""What other tools call the reasoning of an assistant's message: read as a thinking part before its text."""
_PARTS, _TAGS = "its thinking parts", "what stands in think tags"
MEDIA_KEYS = ("image", "images", "video", "videos", "audio", "audios")

# Read by other tools with a meaning that would be lost here, so refused rather than ignored.
_REFUSED_KEYS = {
    "function_call": "use `tool_calls`",
    "reasoning_details": "give its text as `reasoning`",
    "refusal": "give its text as `content`",
    **dict.fromkeys(MEDIA_KEYS, "give an image as a part of `content`, or remove it"),
}
_ONLY_ON: dict[str, Role] = {
    "tool_calls": "assistant",
    "unparsed_tool_calls": "assistant",
    **dict.fromkeys(REASONING_KEYS, "assistant"),
    "tool_call_id": "tool",
    "tools": "system",
    "weight": "assistant",
}


def parse_messages(value: object) -> list[Message]:
    """Check a conversation from outside and bring it into one form.

    A message may have its reasoning under any of `REASONING_KEYS`. Keys that other tools read as part of what is said
    or trained, and that are not read here, are refused where they have a value. All others (`id`, `timestamp`,
    `model` …) are metadata and dropped.

    Raises:
        InputError: names the message by position, what is wrong, and what is allowed.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(f"messages must be a list, not {_kind(value)}")
    if not value:
        raise InputError("the conversation is empty; it needs at least one message")
    messages = []
    for index, item in enumerate(value):
        try:
            messages.append(_parse_message(item))
        except InputError as error:
            raise InputError(f"message {index + 1}: {error}") from error
    return messages


def check_tool_results(messages: Sequence[Message]) -> None:
    """Refuse a tool result that answers no call of the assistant's message before it.

    Raises:
        InputError: names the message by position.
    """
    if all(message["role"] != "tool" for message in messages):
        return
    ids: list[str | None] = []  # of the calls that results may answer now
    num_results = 0
    for index, message in enumerate(messages):
        if message["role"] != "tool":
            ids = [call.get("id") for call in message.get("tool_calls", ())]
            ids += [None] * len(message.get("unparsed_tool_calls", ()))
            num_results = 0
            continue
        num_results += 1
        answered = message.get("tool_call_id")
        if num_results > len(ids):
            raise InputError(
                f"message {index + 1}: a tool result must follow the assistant's message with the call that it "
                f"answers, and there {f'are more results than calls ({len(ids)})' if ids else 'is no such call'}"
            )
        if answered is not None and None not in ids and answered not in ids:
            raise InputError(
                f"message {index + 1}: tool_call_id {answered!r} is of no call of the message before; its calls are "
                f"{', '.join(map(repr, ids))}"
            )


def with_tools(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """The conversation with `tools` declared on its first system message, which is added if there is none."""
    schemas = [_parse_tool(tool) for tool in tools]
    if not schemas:
        return list(messages)
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "tools": schemas}, *messages[1:]]
    return [{"role": "system", "content": "", "tools": schemas}, *messages]


def text_of(message: Message) -> str:
    """The text of a message without its thinking. Raises `InputError` on an image."""
    content = message["content"]
    if isinstance(content, str):
        return content
    if any(part["type"] == "image" for part in content):
        raise InputError("this renderer takes no images; use the renderer of a model that sees")
    return "".join(part["text"] for part in content if part["type"] == "text")


def thinking_of(message: Message) -> str:
    """The reasoning parts of a message, joined; empty if there are none."""
    content = message["content"]
    if isinstance(content, str):
        return ""
    return "".join(part["thinking"] for part in content if part["type"] == "thinking")


def split_thinking(message: Message) -> tuple[str | None, str]:
    """The reasoning of an assistant's message, None if it says nothing of any, and its text.

    A string says it by tags, as `split_tags` reads them. An empty block, or an empty thinking part, is reasoning too:
    that there was none.
    """
    content = message["content"]
    if message["role"] != "assistant":
        return None, text_of(message)
    if isinstance(content, str):
        return split_tags(content)
    is_said = any(part["type"] == "thinking" for part in content)
    return thinking_of(message) if is_said else None, text_of(message)


def with_thinking(thinking: str, message: Message) -> Message:
    """A message of text with reasoning before it, unless that is empty."""
    if not thinking:
        return message
    parts: list[Part] = [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": text_of(message)}]
    return {**message, "content": parts}


def _parse_message(value: object) -> Message:
    if not isinstance(value, Mapping):
        raise InputError(f"must be an object with role and content, not {_kind(value)}")
    role = value.get("role")
    content = value.get("content")
    if role in ROLES and isinstance(content, str) and len(value) == 2:  # nearly all are, and there may be millions
        _check_text(content)
        return {"role": role, "content": content}
    if not isinstance(role, str):
        raise InputError(f"role must be one of {', '.join(ROLES)}, not {_kind(role)}")
    if role not in ROLES:
        raise UnknownNameError("role", role, ROLES)
    for key, way_out in _REFUSED_KEYS.items():
        if not is_empty(value.get(key)):
            raise InputError(f"{key} is not read; {way_out}")
    for key, only in _ONLY_ON.items():
        if value.get(key) and role != only:
            raise InputError(f"{key} belongs on a message of role {only}, not {role}")
    message: Message = {"role": role, "content": _parse_content(value, role)}
    if value.get("tool_calls"):
        message["tool_calls"] = [_parse_tool_call(call) for call in _list(value, "tool_calls")]
    if value.get("unparsed_tool_calls"):
        message["unparsed_tool_calls"] = [_parse_unparsed(call) for call in _list(value, "unparsed_tool_calls")]
    if value.get("tools"):
        message["tools"] = [_parse_tool(tool) for tool in _list(value, "tools")]
    if value.get("tool_call_id") is not None:
        message["tool_call_id"] = _text(value, "tool_call_id")
    if value.get("name") is not None:
        message["name"] = _text(value, "name")
    if value.get("trainable") is not None:
        if not isinstance(value["trainable"], bool):
            raise InputError(f"trainable must be true or false, not {_kind(value['trainable'])}")
        message["trainable"] = value["trainable"]
    if value.get("weight") is not None:
        message["weight"] = _parse_weight(value["weight"])
    return message


def _parse_weight(weight: object) -> int:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or weight not in (0, 1):
        raise InputError(f"weight must be 0, which leaves the message out of the loss, or 1, not {weight!r}")
    return int(weight)


def _parse_content(value: Mapping[str, object], role: Role) -> str | list[Part]:
    content = value.get("content")
    if content is None and (value.get("tool_calls") or value.get("unparsed_tool_calls") or value.get("tools")):
        content = ""
    if isinstance(content, str):
        _check_text(content)
        parts: list[Part] = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        parts = [_parse_part(part, role) for part in content]
    else:
        raise InputError(f"content must be a string or a list of parts, not {_kind(content)}")
    if role == "assistant":
        return _with_one_reasoning(value, parts, content)
    return content if isinstance(content, str) else parts


def _with_one_reasoning(
    value: Mapping[str, object], parts: list[Part], content: str | list[object]
) -> str | list[Part]:
    """Content of an assistant's message with its reasoning once, in whichever of its spellings it stands."""
    said = {key: _text(value, key) for key in REASONING_KEYS if value.get(key) == "" or not is_empty(value.get(key))}
    if any(part["type"] == "thinking" for part in parts):
        said[_PARTS] = "".join(part["thinking"] for part in parts if part["type"] == "thinking")
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    in_tags, rest = split_tags(text)
    if not said:
        return text if in_tags is not None or isinstance(content, str) else parts
    reasoning = one_reasoning(said)
    # Beside a thinking part, a closing tag with nothing before it is text.
    is_empty_block = in_tags is not None and not in_tags.strip() and not ({*said} == {_PARTS} and begins_inside(text))
    if in_tags is not None and (is_empty_block or reasoning.strip() in ("", in_tags.strip())):
        reasoning, parts = one_reasoning({**said, _TAGS: in_tags}), [{"type": "text", "text": rest.lstrip("\n")}]
    elif in_tags is not None and not begins_inside(text) and {*said} != {_PARTS}:
        one_reasoning({**said, _TAGS: in_tags})
    elif {*said} == {_PARTS}:
        return parts
    return [{"type": "thinking", "thinking": reasoning}, *(part for part in parts if part["type"] == "text")]


def _parse_part(part: object, role: Role) -> Part:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text":
        return {"type": "text", "text": _text(part, "text")}
    if kind == "thinking":
        if role != "assistant":
            raise InputError(f"a thinking part belongs on a message of role assistant, not {role}")
        return {"type": "thinking", "thinking": _text(part, "thinking")}
    if kind in ("image", "image_url"):
        if role not in ("user", "tool"):
            raise InputError(f"an image belongs on a message of role user or tool, not {role}")
        return {"type": "image", "image": _parse_image(part, kind)}
    raise InputError(f"a content part must have type text, thinking or image, not {json.dumps(kind, default=str)}")


def _parse_image(part: object, kind: str) -> str:
    """The address of an image; `image_url` is a part as other tools have it, and so are bytes in an object."""
    image = cast("Mapping[str, object]", part).get(kind)
    if kind == "image_url" and isinstance(image, Mapping):
        image = image.get("url")
    if kind == "image" and isinstance(image, Mapping):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, bytes):
        return data_url(image)
    if not isinstance(image, str) or not image:
        raise InputError(f"an image must be a data URL, the path of a file or its bytes, not {_kind(image)}")
    _check_text(image)
    return image


def _parse_tool_call(call: object) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InputError('a tool call must look like {"type": "function", "function": {"name": …, "arguments": {…}}}')
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        _check_text(arguments)
    elif isinstance(arguments, Mapping):
        _check_text(json.dumps(arguments, ensure_ascii=False))
        arguments = dict(arguments)
    else:
        raise InputError(f"the arguments of a tool call must be an object or JSON text, not {_kind(arguments)}")
    parsed: ToolCall = {"type": "function", "function": {"name": _text(function, "name"), "arguments": arguments}}
    if call.get("id") is not None:
        parsed["id"] = _text(call, "id")
    if call.get("place") is not None:
        parsed["place"] = _parse_place(call["place"])
    return parsed


def _parse_unparsed(call: object) -> UnparsedToolCall:
    parsed: UnparsedToolCall = {"text": _text(call, "text"), "error": _text(call, "error")}
    if isinstance(call, Mapping) and call.get("place") is not None:
        parsed["place"] = _parse_place(call["place"])
    return parsed


def _parse_place(place: object) -> int:
    if isinstance(place, bool) or not isinstance(place, int) or place < 0:
        raise InputError(f"the place of a call must be a whole number from 0 on, not {place!r}")
    return place


def _parse_tool(tool: object) -> dict[str, Any]:
    """A tool as `{"type": "function", "function": {…}}`; the bare function is accepted too."""
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(function, Mapping):
        raise InputError(f"a tool must be an object with a name and parameters, not {_kind(tool)}")
    _text(function, "name")
    _check_text(json.dumps(tool, ensure_ascii=False))
    return dict(tool) if "function" in tool else {"type": "function", "function": dict(function)}


def is_empty(value: object) -> bool:
    """True if a value from outside says nothing: null, NaN, by which pandas writes one, or text, a list or an object
    without content.
    """
    return value is None or value in ("", [], {}) or (isinstance(value, float) and math.isnan(value))


def _list(value: Mapping[str, object], key: str) -> list[object]:
    items = value[key]
    if not isinstance(items, list):
        raise InputError(f"{key} must be a list, not {_kind(items)}")
    return items


def _text(value: object, key: str) -> str:
    text = cast("Mapping[str, object]", value).get(key) if isinstance(value, Mapping) else None
    if not isinstance(text, str):
        raise InputError(f"{key} must be a string, not {_kind(text)}")
    _check_text(text)
    return text


def _check_text(text: str) -> None:
    # JSON can spell half of a surrogate pair, which no tokenizer takes.
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"text holds half a surrogate pair (\\u{ord(text[error.start]):04x}) at {error.start}"
        ) from error


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "nothing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
