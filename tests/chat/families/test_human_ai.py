"""`human_ai`: a line for each turn."""

from typing import Any

import pytest

from cookhouse.chat import Message, Termination, TrainOnWhat, get_renderer
from cookhouse.errors import InputError

MESSAGES: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
]


def test_the_text_and_the_trained_part_are_as_the_format_says(tiny: Any) -> None:
    """Catches a header whose tokens differ between the prompt and the trained sequence, and an untrained end."""
    renderer = get_renderer("human_ai", tiny)
    tokens, weights = renderer.build_supervised_example(MESSAGES, TrainOnWhat.ALL_ASSISTANT_MESSAGES)
    ids = tokens.to_ints()
    assert tiny.decode(ids) == "System: Be brief.\nHuman: Hi\nAI: Hello\n"
    assert tiny.decode([t for t, w in zip(ids, weights, strict=True) if w]) == " Hello\n"
    prompt = renderer.build_generation_prompt(MESSAGES[:2]).to_ints()
    assert ids[: len(prompt)] == prompt
    assert tiny.decode(prompt) == "System: Be brief.\nHuman: Hi\nAI:"
    assert renderer.get_stop_sequences() == ["\n"]


@pytest.mark.parametrize(
    ("text", "content", "termination"),
    [
        (" Hello\n", "Hello", Termination.STOP_SEQUENCE),
        ("  12\n", " 12", Termination.STOP_SEQUENCE),
        (" Hel", "Hel", Termination.MALFORMED),
        (" Hello\nHuman: more", "Hello", Termination.MALFORMED),
        ("\n", "", Termination.STOP_SEQUENCE),
        ("", "", Termination.MALFORMED),
    ],
)
def test_a_response_is_parsed_by_its_end(tiny: Any, text: str, content: str, termination: Termination) -> None:
    """Catches an answer that was cut counted as a whole one."""
    renderer = get_renderer("human_ai", tiny)
    message = {"role": "assistant", "content": content}
    assert renderer.parse_response(renderer.encoder.encode([text])) == (message, termination)


def test_what_it_cannot_write_is_refused(tiny: Any) -> None:
    """Catches a tool message written as if a person had said it."""
    renderer = get_renderer("human_ai", tiny)
    call: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}],
    }
    with pytest.raises(InputError, match=r"no form for tools.*renderer_name=qwen3_instruct"):
        renderer.build_generation_prompt([call, {"role": "tool", "content": "3"}])
    thinking: Message = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}
    with pytest.raises(InputError, match="no form for thinking"):
        renderer.build_supervised_example([thinking], TrainOnWhat.ALL_MESSAGES)


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|im_end|>"])
def test_an_end_of_the_models_own_is_no_text(tiny: Any, end: str) -> None:
    """Catches the end of a document read as a part of the answer, where the tokenizer's end of sequence is another."""
    renderer = get_renderer("human_ai", tiny)
    tokens = [*renderer.encoder.encode([" Hello"]), tiny.convert_tokens_to_ids(end)]
    assert renderer.parse_response(tokens) == ({"role": "assistant", "content": "Hello"}, Termination.EOS)


@pytest.mark.parametrize("answer", ["a\nb", "\n", "a\n"])
def test_an_answer_that_spells_its_own_end_is_not_trained(tiny: Any, answer: str) -> None:
    """Catches training on text that no sample could ever hold."""
    renderer = get_renderer("human_ai", tiny)
    messages: list[Message] = [{"role": "user", "content": "a\nb"}, {"role": "assistant", "content": answer}]
    with pytest.raises(InputError, match="where sampling with renderer human_ai ends"):
        renderer.build_supervised_example(messages, TrainOnWhat.ALL_ASSISTANT_MESSAGES)
    renderer.build_generation_prompt([*messages, messages[0]])  # nothing is wrong with it in a prompt


@pytest.mark.parametrize("answer", ["", "a b", "AI: x"])
def test_an_answer_that_only_resembles_its_end_is_trained_whole(tiny: Any, answer: str) -> None:
    renderer = get_renderer("human_ai", tiny)
    message: Message = {"role": "assistant", "content": answer}
    response = renderer.build_response([{"role": "user", "content": "?"}, message])
    assert renderer.parse_response(response) == (message, Termination.STOP_SEQUENCE)
