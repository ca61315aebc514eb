"""The renderers, and the chat templates that they agree with."""

import json
import re
from typing import Any

from tests.chat.families.agreement import Family
from tests.chat.families.conversations import FEATURES

from cookhouse.chat import Message, Part, Renderer, Tokenizer, split_thinking
from cookhouse.chat.dates import CURRENT_DATE
from cookhouse.chat.families.gpt_oss import EFFORTS, GptOssRenderer
from cookhouse.chat.families.qwen3_5 import Qwen35Renderer
from cookhouse.chat.families.qwen3_vl import Qwen3VLRenderer

NO_THINKING = tuple(feature for feature in FEATURES if feature != "thinking")
NO_PARALLEL = tuple(feature for feature in FEATURES if feature != "parallel")
ONE_CALL = tuple(feature for feature in NO_THINKING if feature != "parallel")
NO_TOOLS = tuple(feature for feature in ONE_CALL if feature != "tools")


# ---------------------------------------------------------------------- Llama 3

_DATE = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"


def trimmed(messages: list[Message]) -> list[Message]:
    """Without outer white space, which these templates remove from all but tool results, and text beside a call."""
    made: list[Message] = []
    for message in messages:
        text = "" if message.get("tool_calls") else str(message["content"])
        made.append({**message, "content": text if message["role"] == "tool" else text.strip()})
    return made


def trimmed_and_not_empty(messages: list[Message]) -> list[Message]:
    """The same without an empty system message, to which these templates give a date."""
    return [m for m in trimmed(messages) if m["role"] != "system" or m["content"] or m.get("tools")]


def without_date(text: str) -> str:
    """Without the preamble, and without the system message if there is nothing else in it."""
    return text.replace(_DATE, "").replace("<|start_header_id|>system<|end_header_id|>\n\n<|eot_id|>", "", 1)


# ---------------------------------------------------------------------- DeepSeek V3


def json_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Arguments as JSON text, which these templates ask for."""
    made = []
    for message in messages:
        calls = [
            {**call, "function": {**call["function"], "arguments": _json(call["function"]["arguments"])}}
            for call in message.get("tool_calls", ())
        ]
        made.append({**message, "tool_calls": calls} if calls else message)
    return made


def without_tool_declaration(messages: list[Message]) -> list[Message]:
    """Without what the template leaves to the caller."""
    return [{**message, "tools": []} for message in messages]


def without_thinking_before_calls(messages: list[Message]) -> list[Message]:
    """Messages that call tools without their reasoning, which the template would put behind its `</think>`."""
    made: list[Message] = []
    for message in without_tool_declaration(messages):
        text = split_thinking(message)[1]
        made.append({**message, "content": text} if message.get("tool_calls") else message)
    return made


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def deepseek_answer(messages: list[Message]) -> str:
    thinking, text = split_thinking(messages[-1])
    block = f"{thinking or ''}</think>"
    if messages[-2]["role"] == "tool":  # with no think mark in the prompt
        block = f"<think>{block}" if thinking else ""
    return f"{block}{text}<｜end▁of▁sentence｜>"


# ---------------------------------------------------------------------- Kimi K2


def compact_tools(text: str) -> str:
    """The declared tools as the family's tokenizer code gives them to its template."""
    head, mark, rest = text.partition("<|im_system|>tool_declare<|im_middle|>")
    if not mark or head:
        return text
    written, end, rest = rest.partition("<|im_end|>")
    return (
        f"{mark}{json.dumps(json.loads(written), ensure_ascii=False, sort_keys=True, separators=(',', ':'))}{end}{rest}"
    )


def kimi_answer(messages: list[Message]) -> str:
    thinking, text = split_thinking(messages[-1])
    return f"<think>{thinking or ''}</think>{text}<|im_end|>"


# ---------------------------------------------------------------------- Qwen3


def with_qwen25_system(messages: list[Message]) -> list[Message]:
    """With the system message that this template adds."""
    default = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    if not messages or messages[0]["role"] != "system":
        return [{"role": "system", "content": default}, *messages]
    if messages[0].get("tools") and not messages[0]["content"]:
        return [{**messages[0], "content": default}, *messages[1:]]
    return messages


# ---------------------------------------------------------------------- Qwen3.5 and Qwen3-VL


_THOUGHT = "So."


def qwen35_answer(messages: list[Message]) -> str:
    """What follows the beginning of the think block, in the prompt."""
    thinking, text = split_thinking(messages[-1])
    return f"{(thinking or '').strip()}\n</think>\n\n{text.strip()}<|im_end|>"


def always_thinking(messages: list[Message]) -> list[Message]:
    """With reasoning in every answer, so that no block is empty: tokens can then be compared, too."""
    made: list[Message] = []
    for message in messages:
        thinking, text = split_thinking(message)
        if message["role"] == "assistant" and thinking is None:
            parts: list[Part] = [{"type": "thinking", "thinking": _THOUGHT}, {"type": "text", "text": text}]
            made.append({**message, "content": parts})
        else:
            made.append(message)
    return made


def always_reasoning(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, of the template's messages."""
    return [{"reasoning_content": _THOUGHT, **m} if m["role"] == "assistant" else m for m in messages]


def qwen35_always_thinking(tokenizer: Tokenizer) -> Renderer:
    return Qwen35Renderer(tokenizer)


def qwen3_vl_always_thinking(tokenizer: Tokenizer) -> Renderer:
    return Qwen3VLRenderer(tokenizer)


def with_open_block(text: str) -> str:
    """With the opened think block of the prompt, by which alone Qwen3-VL's template of text differs from Qwen3's."""
    prompt = "<|im_start|>assistant\n"
    return f"{text}<think>\n" if text.endswith(prompt) else text


# ---------------------------------------------------------------------- gpt-oss

_RESULT = re.compile(r'( to=assistant<\|channel\|>commentary<\|message\|>)("(?:[^"\\]|\\.)*")<\|end\|>')
_WITHOUT_PARAMETERS = "// \ntype now = () => any;"


def gpt_oss_without_system(tokenizer: Tokenizer) -> Renderer:
    return GptOssRenderer(tokenizer)


def without_preamble(messages: list[Message]) -> list[Message]:
    """Without text beside a call, which the template takes for analysis."""
    made: list[Message] = []
    for message in messages:
        thinking = split_thinking(message)[0]
        parts: list[Part] = [] if thinking is None else [{"type": "thinking", "thinking": thinking}]
        made.append({**message, "content": parts or ""} if message.get("tool_calls") else message)
    return made


def with_analysis(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reasoning under the template's name, and calls without the text that it would take for more."""
    made = []
    for message in messages:
        renamed = {"thinking" if key == "reasoning_content" else key: value for key, value in message.items()}
        made.append({**renamed, "content": ""} if message.get("tool_calls") else renamed)
    return made


def as_harmony(text: str) -> str:
    """As `openai-harmony` has it where the template differs, on a fixed day."""
    text = re.sub(r"Current date: \d{4}-\d\d-\d\d", f"Current date: {CURRENT_DATE}", text, count=1)
    text = text.replace("<|channel|>commentary json<|message|>", "<|channel|>commentary <|constrain|>json<|message|>")
    text = text.replace(_WITHOUT_PARAMETERS, "type now = (_: {\n}) => any;")
    return _RESULT.sub(lambda match: f"{match[1]}{json.loads(match[2])}<|end|>", text)


def without_system(text: str) -> str:
    return as_harmony(text).partition("<|end|>")[2]


def gpt_oss_answer(messages: list[Message]) -> str:
    thinking, text = split_thinking(messages[-1])
    analysis = f"<|channel|>analysis<|message|>{thinking}<|end|><|start|>assistant" if thinking else ""
    return f"{analysis}<|channel|>final<|message|>{text}<|return|>"


FAMILIES = (
    *(
        Family(
            renderer=f"gpt_oss_{effort}_reasoning",
            tokenizer="gpt_oss",
            options={"reasoning_effort": effort},
            features=NO_PARALLEL,
            ours=without_preamble,
            theirs=with_analysis,
            edit=as_harmony,
            answer=gpt_oss_answer,
        )
        for effort in EFFORTS
    ),
    Family(
        renderer=gpt_oss_without_system,
        tokenizer="gpt_oss",
        features=NO_PARALLEL,
        ours=without_preamble,
        theirs=with_analysis,
        edit=without_system,
        answer=gpt_oss_answer,
    ),
    Family(renderer="qwen3_5", tokenizer="qwen3_5", answer=qwen35_answer, min_exact=100),
    Family(
        renderer=qwen35_always_thinking,
        tokenizer="qwen3_5",
        ours=always_thinking,
        theirs=always_reasoning,
        answer=lambda messages: qwen35_answer(always_thinking(messages)),
    ),
    Family(
        renderer="qwen3_5_disable_thinking",
        tokenizer="qwen3_5",
        options={"enable_thinking": False},
        features=NO_THINKING,
        tail="\n",
    ),
    Family(renderer="qwen3_vl", tokenizer="qwen3", edit=with_open_block, tail="\n", min_exact=50),
    Family(
        renderer=qwen3_vl_always_thinking,
        tokenizer="qwen3",
        ours=always_thinking,
        theirs=always_reasoning,
        edit=with_open_block,
        tail="\n",
    ),
    Family(
        renderer="llama3",
        tokenizer="llama3",
        template="other_templates/llama-3.0.jinja",
        features=NO_TOOLS,
        ours=trimmed,
    ),
    Family(
        renderer="llama3",
        tokenizer="llama3",
        features=ONE_CALL,
        ours=trimmed_and_not_empty,
        edit=without_date,
    ),
    Family(
        renderer="llama3",
        tokenizer="llama3",
        template="other_templates/llama-3.2.jinja",
        options={"date_string": "26 Jul 2024"},
        features=ONE_CALL,
        ours=trimmed_and_not_empty,
        edit=without_date,
    ),
    Family(
        renderer="deepseekv3",
        tokenizer="deepseek_v3",
        features=NO_TOOLS,
    ),
    Family(
        renderer="deepseekv3",
        tokenizer="deepseek_v3_1",
        ours=without_tool_declaration,
        theirs=json_arguments,
    ),
    Family(
        renderer="deepseekv3_thinking",
        tokenizer="deepseek_v3_1",
        options={"thinking": True},
        ours=without_thinking_before_calls,
        theirs=json_arguments,
        answer=deepseek_answer,
    ),
    Family(
        renderer="kimi_k2",
        tokenizer="kimi_k2",
        edit=compact_tools,
        answer=kimi_answer,
    ),
    Family(
        renderer="kimi_k2_instruct",
        tokenizer="kimi_k2",
        template="other_templates/kimi-k2-instruct.jinja",
        edit=compact_tools,
    ),
    Family(renderer="qwen3", tokenizer="qwen3", tail="\n"),
    Family(
        renderer="qwen3_disable_thinking",
        tokenizer="qwen3",
        options={"enable_thinking": False},
        features=NO_THINKING,
        tail="\n",
    ),
    Family(
        renderer="qwen3_instruct",
        tokenizer="qwen3",
        template="other_templates/qwen2.5.jinja",
        features=NO_THINKING,
        ours=with_qwen25_system,
        tail="\n",
    ),
)
