"""`role_colon`: plain text turns."""

from typing import Any

import pytest

from cookhouse.chat import Message, Termination, TrainOnWhat, get_renderer
from cookhouse.errors import InputError

MESSAGES: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
]


def test_the_text_and_the_trained_part_are_as_the_format_says(tokenizer: Any) -> None:
    renderer = get_renderer("role_colon", tokenizer)
    tokens, weights = renderer.build_supervised_example(MESSAGES, TrainOnWhat.ALL_ASSISTANT_MESSAGES)
    ids = tokens.to_ints()
    assert tokenizer.decode(ids) == "System: Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser:"
    assert tokenizer.decode([t for t, w in zip(ids, weights, strict=True) if w]) == " Hello\n\nUser:"
    prompt = renderer.build_generation_prompt(MESSAGES[:2]).to_ints()
    assert tokenizer.decode(prompt) == "System: Be brief.\n\nUser: Hi\n\nAssistant:"
    assert renderer.get_stop_sequences() == ["\n\nUser:"]


def test_a_conversation_that_ends_with_the_user_has_no_extra_turn(tiny: Any) -> None:
    tokens, _ = get_renderer("role_colon", tiny).build_supervised_example(MESSAGES[:2], TrainOnWhat.ALL_MESSAGES)
    assert tiny.decode(tokens.to_ints()) == "System: Be brief.\n\nUser: Hi\n\n"


def test_the_beginning_of_sequence_token_is_written_once_and_not_trained(shared: Any) -> None:
    from cookhouse.models.tokenizers import get_tokenizer

    llama = get_tokenizer(str(shared / "tokenizers/llama3"))
    tokens, weights = get_renderer("role_colon", llama).build_supervised_example(MESSAGES, TrainOnWhat.ALL_TOKENS)
    assert [t for t in tokens.to_ints() if t == llama.bos_token_id] == tokens.to_ints()[:1]
    assert weights[:2] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "content", "termination"),
    [
        (" Hello\n\nUser:", "Hello", Termination.STOP_SEQUENCE),
        (" a\n\nb\n\nUser:", "a\n\nb", Termination.STOP_SEQUENCE),
        (" Hello\n\n", "Hello", Termination.MALFORMED),
        (" Hel", "Hel", Termination.MALFORMED),
        (" Hello\n\nUser: more", "Hello", Termination.MALFORMED),
        ("  two spaces\n\nUser:", " two spaces", Termination.STOP_SEQUENCE),
        ("", "", Termination.MALFORMED),
    ],
)
def test_a_response_is_parsed_by_its_end(tiny: Any, text: str, content: str, termination: Termination) -> None:
    renderer = get_renderer("role_colon", tiny)
    message = {"role": "assistant", "content": content}
    assert renderer.parse_response(renderer.encoder.encode([text])) == (message, termination)


def test_the_end_of_text_token_ends_a_response_and_is_no_content(qwen3: Any) -> None:
    renderer = get_renderer("role_colon", qwen3)
    tokens = [*renderer.encoder.encode([" Hello"]), qwen3.eos_token_id]
    assert renderer.parse_response(tokens) == ({"role": "assistant", "content": "Hello"}, Termination.EOS)


def test_what_it_cannot_write_is_refused(tiny: Any) -> None:
    renderer = get_renderer("role_colon", tiny)
    call: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}],
    }
    with pytest.raises(InputError, match="no form for tools"):
        renderer.build_generation_prompt([call, {"role": "tool", "content": "3"}])
    thinking: Message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "x"}],
    }
    with pytest.raises(InputError, match="no form for thinking"):
        renderer.build_supervised_example([thinking], TrainOnWhat.ALL_MESSAGES)


@pytest.mark.parametrize("answer", ["a\n\nUser: b", "\n\nUser:", "a\n\nUser:"])
def test_an_answer_that_spells_its_own_end_is_not_trained(tiny: Any, answer: str) -> None:
    """Catches training on text that no sample could ever hold."""
    renderer = get_renderer("role_colon", tiny)
    messages: list[Message] = [{"role": "user", "content": "a\n\nUser:b"}, {"role": "assistant", "content": answer}]
    with pytest.raises(InputError, match="where sampling with renderer role_colon ends"):
        renderer.build_supervised_example(messages, TrainOnWhat.ALL_ASSISTANT_MESSAGES)
    renderer.build_generation_prompt([*messages, messages[0]])  # nothing is wrong with it in a prompt


@pytest.mark.parametrize("answer", ["a\n\n", "a\nUser: b", "User: b", "a\n\nuser: b"])
def test_an_answer_that_only_resembles_its_end_is_trained_whole(tiny: Any, answer: str) -> None:
    renderer = get_renderer("role_colon", tiny)
    message: Message = {"role": "assistant", "content": answer}
    response = renderer.build_response([{"role": "user", "content": "?"}, message])
    assert renderer.parse_response(response) == (message, Termination.STOP_SEQUENCE)
