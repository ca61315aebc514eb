"""What renderers write otherwise than their families' templates, one by one as their docstrings list it."""

from typing import Any

import pytest
from tests.chat.families.conversations import TOOLS
from tests.chat.forms import every_tokenizer

from cookhouse.chat import TrainOnWhat, get_renderer

NOTHING_REFUSED = TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES


def call(name: str, arguments: Any, call_id: str | None = None) -> Any:
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made if call_id is None else {**made, "id": call_id}


def said(role: str, content: Any, **more: Any) -> Any:
    return {"role": role, "content": content, **more}


ASK, ANSWER = said("user", "?"), said("assistant", "Yes.")
THOUGHT = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes."}]
FOREIGN = said("assistant", "", tool_calls=[call("f", {}, "call_1"), call("g", '{"a":1}')])
LLAMA_ASSISTANT = "<|start_header_id|>assistant<|end_header_id|>\n\n"


@pytest.mark.parametrize(
    ("name", "messages", "written"),
    [
        # No date, and no system message without one.
        ("llama3", [ASK], "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n?<|eot_id|>"),
        # White space around content.
        ("llama3", [ASK, said("assistant", " a \n")], f"{LLAMA_ASSISTANT} a \n<|eot_id|>"),
        # A name escaped, arguments as they stand.
        (
            "llama3",
            [ASK, said("assistant", "", tool_calls=[call('"', '{"a":1}')])],
            '{"name": "\\"", "parameters": {"a":1}}',
        ),
        # Tools declared as the model card has it.
        (
            "deepseekv3",
            [said("system", "Be brief.", tools=TOOLS[1:]), ASK],
            "<｜begin▁of▁sentence｜>Be brief.\n\n## Tools\nYou have access to the following tools:\n\n### now\n"
            'Description: \n\nParameters: {"type": "object", "properties": {}}\n\nIMPORTANT: ALWAYS adhere to this '
            "exact format for tool use:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>"
            "tool_call_arguments<｜tool▁call▁end｜>{additional_tool_calls}<｜tool▁calls▁end｜>\n\nWhere:\n"
            "- `tool_call_name` must be an exact match to one of the available tools\n"
            "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
            "- For multiple tool calls, chain them directly without separators or spaces<｜User｜>?",
        ),
        # An answer that no user asked for.
        ("deepseekv3", [said("system", "x"), ANSWER], "x<｜Assistant｜></think>Yes.<｜end▁of▁sentence｜>"),
        # A call within a turn keeps the framing that it was sampled with.
        (
            "deepseekv3_thinking",
            [ASK, said("assistant", THOUGHT, tool_calls=[call("f", {})]), said("tool", "3"), ANSWER],
            "<｜Assistant｜><think>hm</think>Yes.<｜tool▁calls▁begin｜>",
        ),
        # A block in the middle of a string.
        (
            "deepseekv3",
            [ASK, said("assistant", "a <think> b </think> c")],
            "<｜Assistant｜></think>a <think> b </think> c<｜end",
        ),
        # The reasoning of the last answer.
        ("deepseekv3_thinking", [ASK, said("assistant", THOUGHT)], "<｜Assistant｜><think>hm</think>Yes.<｜end"),
        ("kimi_k2", [ASK, said("assistant", THOUGHT)], "assistant<|im_middle|><think>hm</think>Yes.<|im_end|>"),
        # Compact JSON with sorted keys, before the default system message.
        (
            "kimi_k2",
            [said("system", "", tools=TOOLS[1:]), ASK],
            '<|im_system|>tool_declare<|im_middle|>[{"function":{"description":"","name":"now","parameters":'
            '{"properties":{},"type":"object"}},"type":"function"}]<|im_end|><|im_system|>system'
            "<|im_middle|>You are Kimi",
        ),
        # An assistant's name; a user's is written.
        (
            "kimi_k2_instruct",
            [said("user", "?", name="Ada"), said("assistant", "Yes.", name="Bob")],
            "<|im_user|>Ada<|im_middle|>?<|im_end|><|im_assistant|>assistant<|im_middle|>Yes.",
        ),
        # Ids of calls, and results that say which they answer or do not.
        (
            "kimi_k2_instruct",
            [ASK, FOREIGN, said("tool", "3", tool_call_id="call_1"), said("tool", "4"), ANSWER],
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
            '<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{"a":1}<|tool_call_end|>'
            "<|tool_calls_section_end|><|im_end|><|im_system|>tool<|im_middle|>## Return of functions.f:0\n3<|im_end|>"
            "<|im_system|>tool<|im_middle|>## Return of functions.g:1\n4",
        ),
        # Reasoning given in a string.
        ("kimi_k2", [ASK, said("assistant", "<think>hm</think>Yes.")], "<|im_middle|><think>hm</think>Yes.<|im_end|>"),
    ],
)
def test_a_deliberate_difference(name: str, messages: list[Any], written: str) -> None:
    renderer = get_renderer(name, every_tokenizer())
    tokens, _ = renderer.build_supervised_example(messages, NOTHING_REFUSED)
    assert written in renderer.encoder.decode(tokens.to_ints())


@pytest.mark.parametrize("name", ["llama3", "deepseekv3", "kimi_k2_instruct"])
def test_header_and_content_are_tokenized_apart(name: str) -> None:
    renderer = get_renderer(name, every_tokenizer())
    prompt = renderer.build_generation_prompt([ASK]).to_ints()
    tokens, _ = renderer.build_supervised_example([ASK, said("assistant", "\n\nYes.")], NOTHING_REFUSED)
    assert tokens.to_ints()[len(prompt) :] == renderer.build_response([ASK, said("assistant", "\n\nYes.")])
