"""Rows that are a message each."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cookhouse.data import BadRows, MessageRows, conversations_of, speaker_columns
from cookhouse.data.rows.names import CONVERSATIONS, offer
from cookhouse.data.sources.speakers import grouped
from cookhouse.data.sources.tables import ListRows
from cookhouse.errors import InputError


def conversations(rows: Sequence[Mapping[str, Any]], speakers: str = "") -> Mapping[str, list[tuple[str, object]]]:
    columns = speaker_columns("ticket", "author", speakers)
    found = conversations_of(grouped(ListRows(rows, "t.csv"), columns, "t.csv"), "t.csv")
    return {each.source: [(m["role"], m["content"]) for m in each.messages] for each in found}


def message(ticket: str, author: str, text: str) -> dict[str, str]:
    return {"Ticket": ticket, "author": author, "text": text}


def test_rows_become_conversations_in_their_order() -> None:
    """Catches tickets that run into one another, and two messages of one speaker that a chat format refuses."""
    rows = [
        message("7", "Customer", "Where is it?"),
        message("8", "client", "Can I pay?"),
        message("7", "Bea", "Which number?"),
        message("8", "Bea", "Yes."),
        message("7", "customer", "1041"),
        message("7", "customer", " "),
        message("7", "customer", "Is it right?"),
        message("7", "agent", "It is."),
    ]
    assert conversations(rows, "assistant:bea") == {
        "t.csv ticket 7": [
            ("user", "Where is it?"),
            ("assistant", "Which number?"),
            ("user", "1041\n\nIs it right?"),
            ("assistant", "It is."),
        ],
        "t.csv ticket 8": [("user", "Can I pay?"), ("assistant", "Yes.")],
    }


def test_who_has_no_role_is_told_with_a_setting_to_paste() -> None:
    """Catches a run that trains on the words of customers, and advice that a shell cuts in two."""
    rows = [message("7", "Bea Moss", "Hello"), message("7", "Al", "Hi")]
    with pytest.raises(InputError, match="'Bea Moss', 'Al'") as refused:
        conversations(rows)
    [setting] = shlex.split(str(refused.value).rpartition("set ")[2])
    assert conversations(rows, setting.removeprefix("speakers=")) == {
        "t.csv ticket 7": [("assistant", "Hello"), ("user", "Hi")]
    }


def test_other_columns_are_kept_where_a_conversation_has_one_value() -> None:
    rows = [
        {**message("7", "user", "a"), "queue": "x", "time": "1"},
        {**message("7", "bot", "b"), "queue": "x", "time": "2"},
    ]
    columns = MessageRows(conversation="ticket", turn="author")
    [conversation] = conversations_of(grouped(ListRows(rows, "t"), columns, "t"), "t")
    assert conversation.extra == {"queue": "x"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"Ticket": "7", "author": "user", "body": "a"}, "columns=text:COLUMN"),
        ({"author": "user", "text": "a"}, "no column 'ticket'"),
        ({"Ticket": "", "author": "user", "text": "a"}, "ticket is empty"),
        ({"Ticket": "7", "author": "user", "text": ""}, "none of the 1 rows of t.csv holds a message"),
    ],
)
def test_rows_without_what_is_needed_are_refused(row: Mapping[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        conversations([row])


def test_rows_that_cannot_be_used_are_left_out_where_that_is_asked_for() -> None:
    """Catches one broken row of an export that refuses all tickets, whatever `on_bad_row` says."""
    rows = [message("7", "user", "a"), message("", "user", "b"), message("7", "bot", "c")]
    bad = BadRows("skip")
    found = grouped(ListRows(rows, "t.csv"), speaker_columns("ticket", "author", ""), "t.csv")
    [conversation] = conversations_of(found, "t.csv", bad=bad)
    assert [each["content"] for each in conversation.messages] == ["a", "c"]
    assert bad.notes == [
        "1 row cannot be used and is left out: t.csv row 2: ticket is empty, so that its conversation is unknown"
    ]


def test_advice_is_quoted_for_a_shell() -> None:
    """Catches advice for columns with spaces, of which a shell makes several words."""
    advice = offer(["Ticket ID", "Customer question", "Agent reply"], CONVERSATIONS)
    assert shlex.split(advice) == ["set", "columns=prompt:Customer question,completion:Agent reply"]
    advice = offer(["ticket_id", "author", "body"], CONVERSATIONS).rpartition("set ")[2]
    assert shlex.split(advice) == ["conversation=ticket_id", "turn=author", "columns=text:body"]
