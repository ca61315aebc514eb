"""Which messages are trained, by mode."""

import pytest

from cookhouse.chat import Message, TrainOnWhat, trained_messages
from cookhouse.errors import InputError

ROLES = ("system", "user", "assistant", "user", "assistant", "tool", "assistant", "user")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("last_assistant_message", "......x."),
        ("last_assistant_turn", "....x.x."),
        ("all_assistant_messages", "..x.x.x."),
        ("all_messages", "xxxxxxxx"),
        ("all_tokens", "xxxxxxxx"),
        ("all_user_and_system_messages", "xx.x...x"),
    ],
)
def test_each_mode_trains_its_messages(mode: str, expected: str) -> None:
    messages: list[Message] = [{"role": role, "content": "x"} for role in ROLES]  # type: ignore[typeddict-item]
    trained = trained_messages(messages, TrainOnWhat(mode))
    assert "".join("x" if is_trained else "." for is_trained in trained) == expected


@pytest.mark.parametrize("mode", ["last_assistant_message", "last_assistant_turn", "all_assistant_messages"])
def test_without_an_assistant_message_nothing_is_trained(mode: str) -> None:
    assert trained_messages([{"role": "user", "content": "x"}], TrainOnWhat(mode)) == [False]


def test_customized_reads_trainable_and_needs_it_on_every_message() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "x", "trainable": True},
        {"role": "assistant", "content": "y", "trainable": False},
    ]
    assert trained_messages(messages, TrainOnWhat.CUSTOMIZED) == [True, False]
    with pytest.raises(InputError, match="message 2 lacks trainable"):
        trained_messages([messages[0], {"role": "assistant", "content": "y"}], TrainOnWhat.CUSTOMIZED)


def test_trainable_in_another_mode_is_refused_rather_than_ignored() -> None:
    messages: list[Message] = [{"role": "user", "content": "x", "trainable": True}]
    with pytest.raises(InputError, match=r"message 1 carries trainable.*use train_on_what=customized"):
        trained_messages(messages, TrainOnWhat.ALL_MESSAGES)


@pytest.mark.parametrize("mode", [mode for mode in TrainOnWhat if mode is not TrainOnWhat.CUSTOMIZED])
def test_an_answer_of_weight_0_is_left_out_of_every_mode_and_1_changes_nothing(mode: TrainOnWhat) -> None:
    """Would catch answers that a file marks as bad and that are trained on."""
    asked: Message = {"role": "user", "content": "x"}
    answer: Message = {"role": "assistant", "content": "y"}
    zero: Message = {**answer, "weight": 0}
    before = trained_messages([asked, answer, asked, answer], mode)
    assert trained_messages([asked, {**answer, "weight": 1}, asked, answer], mode) == before
    assert trained_messages([asked, zero, asked, answer], mode) == [*before[:1], False, *before[2:]]
    assert trained_messages([asked, answer, asked, zero], mode) == [*before[:3], False]


def test_customized_refuses_a_weight_that_says_otherwise() -> None:
    both: Message = {"role": "assistant", "content": "y", "weight": 0, "trainable": True}
    with pytest.raises(InputError, match="message 1 has weight 0 and trainable true"):
        trained_messages([both], TrainOnWhat.CUSTOMIZED)
