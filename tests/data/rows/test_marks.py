"""Rows that are already written in a chat format are told."""

from typing import Any

import pytest

from cookhouse.chat import get_renderer
from cookhouse.data import mark_remarks
from cookhouse.data.rows.labeled import labeled_from_row
from cookhouse.data.rows.marks import Row
from cookhouse.data.rows.pairs import comparison_from_row, preference_from_row, prompt_from_row
from cookhouse.data.rows.shapes import conversation_from_row
from cookhouse.models.tokenizers import get_tokenizer

ASKED = "<|im_start|>user\nhi<|im_end|>\n"


@pytest.fixture(scope="module")
def encoder() -> Any:
    return get_renderer("qwen3_instruct", get_tokenizer("cookhouse/tiny")).encoder


@pytest.mark.parametrize(
    "row",
    [
        conversation_from_row({"text": ASKED}, "f:2"),
        conversation_from_row({"prompt": ASKED, "completion": "hello"}, "f:2"),
        conversation_from_row({"prompt": "hi", "completion": "hello<|im_end|>"}, "f:2"),
        preference_from_row({"prompt": "hi", "chosen": "hello<|im_end|>", "rejected": "no"}, "f:2"),
        comparison_from_row({"prompt": ASKED, "completion_a": "a", "completion_b": "b", "label": "A"}, "f:2"),
        labeled_from_row({"prompt": "hi", "completion": "a<|im_end|>", "label": True}, "f:2"),
        prompt_from_row({"prompt": ASKED}, "f:2"),
    ],
    ids=lambda row: type(row).__name__,
)
def test_rows_that_spell_marks_are_counted_with_the_first(encoder: Any, row: Row) -> None:
    """Would catch a chat format that is trained as letters without a word."""
    others = [conversation_from_row({"prompt": "<b>hi</b> |im_end|", "completion": "a"}, f"f:{n}") for n in (1, 3)]
    (remark,) = mark_remarks([others[0], row, others[1]], encoder, what="rows")
    assert remark.startswith("1 of 3 rows spell marks of the chat format or special tokens (<|im_")
    assert remark.endswith("the first is f:2")


def test_rows_without_marks_are_not_told(encoder: Any) -> None:
    assert mark_remarks([conversation_from_row({"text": "<|im_start| >"}, "f:1")], encoder) == []
