"""What is shown of a prompt is what somebody asked, and no template's words."""

import pytest

from cookhouse.algorithms.rollouts.rollout_pages import QuestionReader
from cookhouse.chat import Message
from cookhouse.data import build_renderer

SYSTEM: Message = {"role": "system", "content": "Be short."}
ASKED: Message = {"role": "user", "content": "What is\n\n2 + 3?"}
SAID: Message = {"role": "assistant", "content": "Five."}


@pytest.mark.parametrize("renderer", ["human_ai", "role_colon", "qwen3_instruct", "qwen3_disable_thinking", "template"])
@pytest.mark.parametrize(
    "messages",
    [[ASKED], [SYSTEM, ASKED], [{"role": "user", "content": "Hello"}, SAID, ASKED], [ASKED, SAID]],
    ids=["alone", "behind a system prompt", "later", "answered"],
)
def test_the_last_message_of_a_user_is_what_was_asked(renderer: str, messages: list[Message]) -> None:
    """Catches a transcript that begins with a system prompt and ends in the tail of the question."""
    made = build_renderer("cookhouse/tiny", renderer, force=True)
    assert QuestionReader(made)(made.build_generation_prompt(messages)) == ASKED["content"]


def test_a_prompt_without_a_user_is_shown_as_it_is() -> None:
    made = build_renderer("cookhouse/tiny", "qwen3_instruct")
    prompt = made.build_generation_prompt([SYSTEM])
    assert "Be short." in QuestionReader(made)(prompt)
