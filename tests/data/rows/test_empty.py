"""Answers without text."""

from cookhouse.chat import TrainOnWhat
from cookhouse.data.rows.conversations import conversations_from_rows
from cookhouse.data.rows.empty import left_untrained

MODE = TrainOnWhat.ALL_ASSISTANT_MESSAGES
USER = {"role": "user", "content": "Hello?"}


def said(*answers: str) -> dict[str, object]:
    return {"messages": [m for answer in answers for m in (USER, {"role": "assistant", "content": answer})]}


def test_empty_answers_are_left_out_of_the_loss_and_counted() -> None:
    """Catches a model that learns to say nothing from tickets that nobody answered."""
    given = conversations_from_rows([said("Yes."), said(" "), said("", "Yes."), {"text": "plain"}])
    kept, remarks = left_untrained(given, MODE)
    assert [each.source for each in kept] == ["row 1", "row 3", "row 4"]
    assert [message.get("weight") for message in kept[1].messages] == [None, 0, None, None]
    assert remarks == [
        "1 of 4 conversations have no answer but an empty one, and are not trained on (empty_answers=skip); "
        "the first is row 2",
        "1 of 4 conversations have an empty answer among others, which is not trained on (empty_answers=skip); "
        "the first is row 3",
    ]


def test_a_call_without_text_and_messages_of_the_user_are_trained_on() -> None:
    """Catches calls of tools, whose text is empty, that are lost to training."""
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "find", "arguments": "{}"}}]}
    given = conversations_from_rows([{"messages": [USER, call]}, said("")])
    assert [each.source for each in left_untrained(given, MODE)[0]] == ["row 1"]
    assert [each.source for each in left_untrained(given, TrainOnWhat.ALL_MESSAGES)[0]] == ["row 1", "row 2"]
