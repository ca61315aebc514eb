"""What a row says is read alike in rows of all kinds."""

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from cookhouse.data.rows.labeled import is_labeled, labeled_from_row
from cookhouse.data.rows.pairs import comparison_from_row, preference_from_row, prompt_from_row, question_from_row
from cookhouse.data.rows.remarks import null_remarks
from cookhouse.data.rows.shapes import conversation_from_row
from cookhouse.errors import InputError

ASK = [{"role": "user", "content": "q"}]
YES, NO = ([{"role": "assistant", "content": said}] for said in "yn")
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
TURNS = [{"role": "user", "content": "q0"}, {"role": "assistant", "content": "a0"}]
READ: dict[str, Callable[[Any, str], Any]] = {
    "conversation": conversation_from_row,
    "pair": preference_from_row,
    "comparison": comparison_from_row,
    "labeled": labeled_from_row,
    "prompt": prompt_from_row,
}
ANSWERS: dict[str, dict[str, Any]] = {
    "conversation": {"completion": YES},
    "pair": {"chosen": YES, "rejected": NO},
    "comparison": {"completion_a": YES, "completion_b": NO, "label": "A"},
    "labeled": {"completion": YES, "label": True},
    "prompt": {"answer": "y"},
}


def asked(kind: str, row: dict[str, Any]) -> Any:
    read = READ[kind]({**row, **ANSWERS[kind]}, "f:1")
    return read.messages[:-1] if kind == "conversation" else read.prompt


def called(**arguments: Any) -> list[dict[str, Any]]:
    calls = [{"type": "function", "function": {"name": "f", "arguments": arguments}, "id": None}]
    return [*ASK, {"role": "assistant", "content": "", "tool_calls": calls}]


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("tools", [TOOLS, json.dumps(TOOLS), str(TOOLS), [json.dumps(TOOLS[0])]])
def test_tools_and_the_system_message_are_part_of_what_is_asked(kind: str, tools: object) -> None:
    """Would catch answers that are trained behind another prompt than the one that they answered."""
    [system, *rest] = asked(kind, {"prompt": ASK, "system": "s", "tools": tools})
    assert system == {"role": "system", "content": "s", "tools": TOOLS}
    assert rest == ASK


def test_whole_conversations_of_a_pair_have_tools_too() -> None:
    pair = preference_from_row({"chosen": [*ASK, *YES], "rejected": [*ASK, *NO], "tools": TOOLS, "system": "s"}, "f:1")
    assert (pair.prompt[0]["tools"], pair.prompt[1:], pair.extra) == (TOOLS, ASK, {})


@pytest.mark.parametrize("kind", READ)
def test_two_system_messages_are_refused(kind: str) -> None:
    with pytest.raises(InputError, match="f:1: the first message and system differ"):
        asked(kind, {"prompt": [{"role": "system", "content": "t"}, *ASK], "system": "s"})


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("written", [json.dumps(ASK), str(ASK), str([{"from": "human", "value": "q"}])])
def test_messages_in_a_cell_are_messages(kind: str, written: str) -> None:
    """Would catch a list that is trained on as its letters."""
    assert asked(kind, {"prompt": written}) == ASK


@pytest.mark.parametrize("text", ["[1, 2]", '{"role": "clerk", "content": "x"}', "[{'a': 1}]", "[sic] {x}", "[]"])
def test_other_text_that_begins_as_a_list_stays_text(text: str) -> None:
    assert asked("pair", {"prompt": text}) == [{"role": "user", "content": text}]


def test_a_cell_that_only_begins_as_messages_is_refused() -> None:
    # numpy writes no commas
    cell = "[{'role': 'user', 'content': 'q'}\n {'role': 'assistant', 'content': 'a'}]"
    with pytest.raises(InputError, match=r"^f:1: chosen is text but not JSON: .*; nor can it be read as Python"):
        preference_from_row({"prompt": "q", "chosen": cell, "rejected": "n"}, "f:1")


@pytest.mark.parametrize("kind", ["pair", "comparison", "labeled", "prompt"])
def test_what_an_instruction_is_about_and_what_was_said_before_are_asked(kind: str) -> None:
    row = {"instruction": "q", "input": "i", "history": [["q0", "a0"]]}
    assert asked(kind, row) == [*TURNS, {"role": "user", "content": "q\n\ni"}]
    with pytest.raises(InputError, match="input is not read beside question"):
        asked(kind, {"question": "q", "input": "i"})


def test_a_verdict_may_be_text_as_in_csv() -> None:
    row = {"prompt": "q", "completion": "a", "label": "False"}
    assert is_labeled(row)
    assert labeled_from_row(row, "f:1").is_good is False
    assert not is_labeled({**row, "label": "A"})


def test_nulls_of_a_table_are_left_out_and_told() -> None:
    """Would catch arguments and keys of schemas that nobody wrote."""
    parameters = {"properties": {"x": {"enum": None}}, "y": None}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    read = conversation_from_row(
        {"messages": called(a=1, b=None, c={"d": None, "e": [None, 2]}), "tools": tools}, "f:1"
    )
    assert read.messages[0]["tools"][0]["function"]["parameters"] == {"properties": {"x": {}}}
    assert read.messages[-1]["tool_calls"][0]["function"]["arguments"] == {"a": 1, "c": {"e": [None, 2]}}
    plain = conversation_from_row({"messages": called(a=1)}, "f:2")
    [note] = null_remarks([plain, read, read], what="conversations")
    assert note.startswith("4 arguments of calls and keys of tools are null")
    assert note.endswith("left out of 1 conversations; the first is f:1, message 2: f.b")
    assert null_remarks([plain], what="conversations") == []


def test_values_that_json_lacks_are_written_or_refused_by_their_place() -> None:
    read = conversation_from_row({"messages": called(day=date(2026, 1, 2), price=Decimal("3.50"), n=Decimal(3))}, "f:1")
    assert read.messages[-1]["tool_calls"][0]["function"]["arguments"] == {"day": "2026-01-02", "price": 3.5, "n": 3}
    read = conversation_from_row({"messages": called(n=np.int64(3), l=np.array([1.5]), t=np.bool(True))}, "f:1")
    assert read.messages[-1]["tool_calls"][0]["function"]["arguments"] == {"n": 3, "l": [1.5], "t": True}
    for value, reason in ((b"x", "is of type bytes"), (float("nan"), "is nan, which is no number in JSON")):
        with pytest.raises(InputError, match=rf"^f:1: message 2: f\.a\[1\] {reason}"):
            conversation_from_row({"messages": called(a=[0, value])}, "f:1")


@pytest.mark.parametrize("as_text", [json.dumps, str])
def test_calls_may_stand_as_text(as_text: Callable[[object], str]) -> None:
    asking, calling = called(a=1)
    calling["tool_calls"] = as_text(calling["tool_calls"])
    read = conversation_from_row({"messages": [asking, calling]}, "f:1")
    assert read.messages[-1]["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": None, "prompt": "q", "completion": "y"},
        {"prompt": None, "completion": None, "instruction": "q", "output": "y"},
        {"messages": float("nan"), "tools": float("nan"), "prompt": "q", "completion": "y"},
        {"messages": [{**ASK[0], "trainable": None, "from": None}, {**YES[0], "weight": None}], "text": None},
    ],
)
def test_fields_of_other_rows_of_the_table_say_nothing(row: dict[str, Any]) -> None:
    assert conversation_from_row(row, "f:1").messages == [*ASK, *YES]
    assert question_from_row(row, "f:1").answer == "y"


def test_arguments_that_are_null_are_none() -> None:
    calls = [{"function": {"name": "f", "arguments": None}}]
    read = conversation_from_row({"messages": [*ASK, {"role": "assistant", "content": "", "tool_calls": calls}]}, "f:1")
    assert read.messages[-1]["tool_calls"][0]["function"]["arguments"] == {}
    assert read.left_out[0].first == "message 2: f"


@pytest.mark.parametrize("label", [False, "False", "true"])
def test_a_verdict_is_no_metadata_of_a_conversation(label: object) -> None:
    """Would catch bad answers that are trained, whose label stands as text, as in CSV."""
    with pytest.raises(InputError, match="f:1: label is not read, and bad answers would be trained on"):
        conversation_from_row({"prompt": "q", "completion": "a", "label": label}, "f:1")


def test_plain_text_beside_empty_fields_is_plain_text() -> None:
    assert conversation_from_row({"prompt": None, "completion": None, "text": "Once."}, "f:1").text == "Once."
