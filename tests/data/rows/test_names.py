"""Fields in other letters, and columns that seem to be ours."""

import shlex
from typing import Any

import pytest

from cookhouse.data.rows.comparisons import read_judged
from cookhouse.data.rows.conversations import conversations_from_rows
from cookhouse.data.rows.names import COMPARISONS, CONVERSATIONS, PREFERENCES, PROMPTS, offer
from cookhouse.data.rows.pairs import comparison_from_row, preference_from_row, prompt_from_row
from cookhouse.data.rows.shapes import conversation_from_row
from cookhouse.data.sources.given import GivenRows
from cookhouse.errors import BadRowsError, InputError


@pytest.mark.parametrize(
    ("names", "kinds", "columns"),
    [
        (["Question", "Answer"], CONVERSATIONS, "prompt:Question,completion:Answer"),
        (["id", "customer question", "Agent-Reply"], CONVERSATIONS, "prompt:customer question,completion:Agent-Reply"),
        (["Guest", "Reply"], CONVERSATIONS, "prompt:Guest,completion:Reply"),  # what is left is the other field
        (["prompt", "response"], CONVERSATIONS, "completion:response"),
        (["instruction", "Output"], CONVERSATIONS, "prompt:instruction,completion:Output"),
        (["Title", "Body"], CONVERSATIONS, "text:Body"),
        (["Query", "Better", "Worse"], PREFERENCES, "prompt:Query,chosen:Better,rejected:Worse"),
        (["q", "reply", "good?", "Label"], PREFERENCES, "prompt:q,completion:reply,label:Label"),
        (
            ["Question", "answer_a", "answer_b", "winner"],
            COMPARISONS,
            "prompt:Question,completion_a:answer_a,completion_b:answer_b,label:winner",
        ),
        (["Query"], PROMPTS, "prompt:Query"),
    ],
)
def test_what_columns_seem_to_be_is_offered(names: list[str], kinds: Any, columns: str) -> None:
    assert shlex.split(offer(names, kinds)) == ["set", f"columns={columns}"]


@pytest.mark.parametrize("names", [["a1", "b1"], [], ["Question, asked", "Answer"], ["prompt"]])
def test_where_nobody_can_tell_the_setting_alone_is_offered(names: list[str]) -> None:
    # A name with a comma could not be typed as it stands.
    assert offer(names, CONVERSATIONS).endswith("columns=prompt:COLUMN,completion:COLUMN")


def test_a_row_of_other_names_is_refused_with_the_offer() -> None:
    with pytest.raises(InputError, match="has Question, Answer; set columns=prompt:Question,completion:Answer"):
        conversation_from_row({"Question": "q", "Answer": "a"}, "f:1")
    with pytest.raises(InputError, match="set columns=chosen:Better,rejected:Worse"):
        preference_from_row({"prompt": "q", "Better": "a", "Worse": "b"}, "f:1")
    with pytest.raises(InputError, match="set columns=prompt:Query"):
        prompt_from_row({"Query": "q"}, "f:1")


def test_the_offer_is_made_once_for_all_rows() -> None:
    with pytest.raises(BadRowsError) as caught:
        conversations_from_rows([{"Question": "q", "Answer": "a"}] * 3)
    assert str(caught.value).endswith("this one has Question, Answer\n  set columns=prompt:Question,completion:Answer")
    assert str(caught.value).count("set columns=") == 1


def test_rows_with_the_same_reason_share_a_line() -> None:
    # Catches a screen full of one sentence, twenty times over, with the way out below it.
    rows = [{"Question": "q", "Answer": "a"}] * 12 + [{"a1": "b"}] + [{"Question": "q", "Answer": "a"}] * 12
    with pytest.raises(BadRowsError) as caught:
        conversations_from_rows(rows)
    title, *reasons, more, offered, _ = str(caught.value).splitlines()
    assert title == "25 rows cannot be used"
    assert [reason.strip().partition(": ")[0] for reason in reasons] == [
        "row 1-12, 14-20",
        "row 13",
    ]
    assert (more, offered) == ("  and 5 more", "  set columns=prompt:Question,completion:Answer")


def test_the_case_of_fields_is_no_matter() -> None:
    row = {"Prompt": "q", "COMPLETION": "a", "System": "s", "Skill": "x"}
    conversation = conversation_from_row(row, "f:1")
    assert [message["role"] for message in conversation.messages] == ["system", "user", "assistant"]
    assert conversation.extra == {"Skill": "x"}
    assert conversation_from_row({"Messages": [{"role": "user", "content": "q"}]}, "f:1").messages
    assert preference_from_row({"prompt": "q", "Chosen": "a", "Rejected": "b"}, "f:1").chosen[0]["content"] == "a"
    compared = {"prompt": "q", "Completion_A": "a", "Completion_B": "b", "Label": "B"}
    assert comparison_from_row(compared, "f:1").label == "B"
    assert prompt_from_row({"Question": "q"}, "f:1").prompt[0]["content"] == "q"
    rows = [{"Prompt": "q", "Completion": "a", "Label": True}]
    assert "LabeledRow" in str(read_judged(data(rows)))


def data(rows: list[dict[str, object]]) -> Any:
    from cookhouse.data import data_source

    return data_source(GivenRows.of(rows))


def test_a_row_that_is_understood_keeps_its_other_fields() -> None:
    # Metadata of our names in other letters would else be refused, or take the place of what is there.
    row = {"prompt": "q", "completion": "a", "Context": "c", "Prompt": "p"}
    conversation = conversation_from_row(row, "f:1")
    assert (conversation.messages[0]["content"], conversation.extra) == ("q", {"Context": "c", "Prompt": "p"})


def test_a_text_is_no_conversation() -> None:
    conversation = conversation_from_row({"text": "Once.", "id": 3}, "f:1")
    assert (conversation.messages, conversation.text, conversation.extra) == ([], "Once.", {"id": 3})
    assert conversation_from_row({"Text": "Once."}, "f:1").text == "Once."
    # Beside a conversation it is one of its other fields, as ever.
    assert conversation_from_row({"prompt": "q", "completion": "a", "text": "x"}, "f:1").extra == {"text": "x"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": ""}, "text is empty"),
        ({"text": " \n"}, "text is empty"),
        ({"text": 3}, "text must be a string, not int"),
        ({"text": "\ud800"}, "half a surrogate pair"),
        ({"text": "x", "prompt": "q"}, "prompt is not read beside text"),
        (
            {"text": "x", "Question": "q", "Answer": "a"},
            "Question is not read beside text; .*columns=prompt:",
        ),
        ({"text": "x", "system": "s"}, "system is not read beside text"),
        ({"text": "x", "images": ["a.png"]}, "images is not read beside text"),
    ],
)
def test_a_text_that_cannot_be_trained_on_as_a_whole_is_refused(row: dict[str, Any], reason: str) -> None:
    # Catches an answer or a question that is left out without a word.
    with pytest.raises(InputError, match=reason):
        conversation_from_row(row, "f:1")
