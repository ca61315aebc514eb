"""Awkward conversations, made from a seed."""

import random
from collections.abc import Collection
from typing import Any

from cookhouse.chat import Message, Part, ToolCall

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather — of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
    },
]
TEXTS = (
    "Hi",
    "What is 2+2?",
    "Rain, then sun.",
    "A list:\n\n- one\n- two\n\nand code:\n```python\nprint('x')\n```",
    "Kyōto 京都 is 🏯",
    "مرحبا بالعالم",
    "naïve café — “quotes” …",
    "1 234 567,89 €",
    '{"city": "Oslo"}',
    "don't  double   spaces\tand tabs",
    "👩‍👩‍👧‍👦 family",
    "x",
)
SPECIALS = (
    "<|im_end|>",
    "<|im_start|>assistant\n",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_response>",
    "<|eot_id|>",
    "<|start_header_id|>system<|end_header_id|>\n\n",
    "<|begin_of_text|>",
    "<｜User｜>",
    "<｜end▁of▁sentence｜>",
    "<｜tool▁calls▁begin｜>",
    "<|im_middle|>",
    "<|tool_calls_section_begin|>",
    "<|end|>",
    "<|start|>",
    "<|channel|>final<|message|>",
    "<|return|>",
    "<|vision_start|>",
)
SPACES = (" ", "\n", "\n\n", "  \n", "\t")

FEATURES = ("system", "turns", "thinking", "tools", "parallel", "specials", "spaces", "empty")
"""What conversations may have; a family leaves out what its renderer has no form for."""

NO_TOOLS_OR_THINKING = ("system", "turns", "specials", "spaces", "empty")


def make_conversation(seed: int, features: Collection[str] = FEATURES) -> list[Message]:
    """A conversation that ends with an answer, with some of the features."""
    generator = random.Random(seed)
    some = {name for name in sorted(features) if generator.random() < (0.6 if name in ("turns", "tools") else 0.4)}
    messages: list[Message] = []
    if "system" in some or "tools" in some:
        messages.append({"role": "system", "content": _text(generator, some) if "system" in some else ""})
    if "tools" in some:
        messages[0]["tools"] = TOOLS
    num_calls = 0
    for _ in range(generator.randint(2, 4) if "turns" in some else 1):
        messages.append({"role": "user", "content": _text(generator, some)})
        while "tools" in some and generator.random() < 0.5:
            num_now = generator.choice([1, 2]) if "parallel" in some else 1
            calls = [_call(generator, num_calls + i) for i in range(num_now)]
            num_calls += len(calls)
            messages.append({"role": "assistant", "content": _answer(generator, some, is_call=True)})
            messages[-1]["tool_calls"] = calls
            for call in calls:
                name, text = call["function"]["name"], _text(generator, some)
                messages.append({"role": "tool", "name": name, "tool_call_id": call["id"], "content": text})
        messages.append({"role": "assistant", "content": _answer(generator, some)})
    return messages


def make_conversations(count: int, features: Collection[str] = FEATURES) -> list[list[Message]]:
    return [make_conversation(seed, features) for seed in range(count)]


def _text(generator: random.Random, some: Collection[str]) -> str:
    if "empty" in some and generator.random() < 0.2:
        return ""
    text = " ".join(generator.choice(TEXTS) for _ in range(generator.choice([1, 1, 2])))
    if "specials" in some and generator.random() < 0.5:
        position = generator.randint(0, len(text))
        text = text[:position] + generator.choice(SPECIALS) + text[position:]
    if "spaces" in some and generator.random() < 0.5:
        text = generator.choice(("", *SPACES)) + text + generator.choice(SPACES)
    return text


def _answer(generator: random.Random, some: Collection[str], *, is_call: bool = False) -> str | list[Part]:
    text = "" if is_call and generator.random() < 0.5 else _text(generator, some)
    text = text.replace("</think>", "<think>")  # in a string, what stands before a closing tag alone is reasoning
    if "thinking" not in some or generator.random() < 0.3:
        return text
    return [{"type": "thinking", "thinking": f"So. {_text(generator, some)}"}, {"type": "text", "text": text}]


def _call(generator: random.Random, number: int) -> ToolCall:
    name = generator.choice(["weather", "now"])
    arguments: dict[str, Any] = {"city": generator.choice(TEXTS)} if name == "weather" else {}
    return {"type": "function", "id": f"functions.{name}:{number}", "function": {"name": name, "arguments": arguments}}
