"""What chat templates do in several ways: how an answer ends, which template is used, ids of calls, open thoughts."""

import copy
from typing import Any

import pytest
from tests.chat.template.test_renderer import ALL, CHATML, spelled

from cookhouse.chat import Message, Termination, with_tools
from cookhouse.chat.template import TemplateRenderer
from cookhouse.chat.template.given import short_id
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

USER: Message = {"role": "user", "content": "q"}
TALK: list[Message] = [USER, {"role": "assistant", "content": "a one"}, USER, {"role": "assistant", "content": "a two"}]
SYSTEM: Message = {"role": "system", "content": "Be brief."}
TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}


def tokenizer_with(template: Any, *marks: str, eos: str = "<|im_end|>", bos: str | None = None) -> Any:
    tokenizer = copy.deepcopy(get_tokenizer("cookhouse/tiny"))
    tokenizer.add_special_tokens({"additional_special_tokens": list(marks)})
    tokenizer.eos_token, tokenizer.bos_token, tokenizer.chat_template = eos, bos, template
    return tokenizer


TAGGED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}[SAY]{{ m.content }}[/SAY]"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
)
TWO_MARKS = {
    "a tag in the prompt": TAGGED + "[SAY]{% endif %}",
    "a tag in the answer": TAGGED + "{% endif %}",
    "on lines of their own": TAGGED.replace("[/SAY]", "\n[/SAY]\n") + "[SAY]{% endif %}",
}


@pytest.mark.parametrize("name", TWO_MARKS)
def test_of_several_marks_the_one_that_ends_the_turn_is_trained(name: str) -> None:
    """Would catch a model that is never taught to stop, and marks that are read as text."""
    renderer = TemplateRenderer(tokenizer_with(TWO_MARKS[name], "[SAY]", "[/SAY]"))
    whole = spelled(renderer, TALK)[0]
    assert whole.count("<|im_end|>]") == whole.count("[/SAY]") == 2
    response = renderer.build_response(TALK)
    assert renderer.get_stop_sequences() == response[-1:]
    for num in range(1, len(response) + 1):  # as it grows
        message, ending = renderer.parse_response(response[:num])
        assert "a two".startswith(str(message["content"]).strip())
        assert (ending is Termination.STOP_SEQUENCE) == (num == len(response))


def test_what_ends_only_the_last_answer_is_trained_where_it_ends_sequences() -> None:
    template = CHATML.replace(
        "{% if add_gen", "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}{% if add_gen"
    )
    renderer = TemplateRenderer(tokenizer_with(template, "[STOP]", eos="[STOP]"))
    assert spelled(renderer, TALK[:2])[0].endswith("[a one<|im_end|>\n[STOP]]")
    message, ending = renderer.parse_response(renderer.build_response(TALK))
    assert (message["content"], ending) == ("a two", Termination.STOP_SEQUENCE)


def test_of_several_templates_the_one_is_used_that_transformers_uses() -> None:
    """Would catch a traceback at named templates, and tools declared in the wrong one."""
    for_tools = "{% if tools %}<|im_start|>system\nTOOLS {{ tools | tojson }}<|im_end|>\n{% endif %}" + CHATML
    tokenizer = tokenizer_with({"default": CHATML, "tool_use": for_tools, "rag": "{{ 1 / 0 }}"})
    renderer = TemplateRenderer(tokenizer)
    for tools in ([], [TOOL]):
        tokens = renderer.build_supervised_example(with_tools(TALK, tools), ALL)[0].to_ints()
        written = tokenizer.apply_chat_template(TALK, tools=tools or None, tokenize=False)
        assert renderer.encoder.decode(tokens) == written.rstrip()
        prompt = renderer.build_generation_prompt(with_tools([USER], tools)).to_ints()
        assert renderer.encoder.decode(prompt) == tokenizer.apply_chat_template(
            [USER], tools=tools or None, tokenize=False, add_generation_prompt=True
        )


def test_without_a_default_template_the_way_out_is_named() -> None:
    with pytest.raises(InputError, match="has the chat templates 'rag', 'tool_use' and none named 'default'"):
        TemplateRenderer(tokenizer_with({"tool_use": CHATML, "rag": CHATML}))


_NINE = "{% if c.id is not defined or c.id | length != 9 %}{{ raise_exception('ids have nine letters') }}{% endif %}"
_TURNS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('nine') }}{% endif %}"
    '[RESULT]{"content": {{ m.content }}, "id": "{{ m.tool_call_id }}"}[/RESULT]'
    "{% elif m.tool_calls %}CALLS{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
CALLS = {
    "a list": '[CALLS] [{% for c in m.tool_calls %}{{ (c.function | tojson)[:-1] }}, "id": "{{ c.id }}"}'
    f"{_NINE}{{{{ ', ' if not loop.last }}}}{{% endfor %}}]{{{{ eos_token }}}}",
    "names behind marks": "{% for c in m.tool_calls %}[CALLS]{{ c.function.name }}[ID]{{ c.id }}"
    f"{_NINE}[ARGS]{{{{ c.function.arguments | tojson }}}}{{% endfor %}}{{{{ eos_token }}}}",
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_with_ids_of_nine_letters_are_learned(name: str) -> None:
    """Would catch templates of Mistral's kind, which refuse any other id, without calls."""
    marks = ("[INST]", "[/INST]", "[RESULT]", "[/RESULT]", "[CALLS]", "[ID]", "[ARGS]", "<s>", "</s>")
    renderer = TemplateRenderer(tokenizer_with(_TURNS.replace("CALLS", CALLS[name]), *marks, eos="</s>", bos="<s>"))
    calls: Any = [
        {"type": "function", "id": call_id, "function": {"name": "add", "arguments": {"a": number}}}
        for number, call_id in enumerate(("call_of_another_length", "nineLtrs1"))
    ]
    talk: list[Message] = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "1", "tool_call_id": "call_of_another_length"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "a"},
    ]
    read, ending = renderer.parse_response(renderer.build_response(talk[:2]))
    assert ending is Termination.STOP_SEQUENCE
    assert [call["function"] for call in read["tool_calls"]] == [call["function"] for call in calls]
    assert [call["id"] for call in read["tool_calls"]] == [short_id("call_of_another_length"), "nineLtrs1"]
    whole = spelled(renderer, talk)[-1]
    assert whole.index(f'"{short_id("call_of_another_length")}"}}[/RESULT]') < whole.index('"nineLtrs1"}[/RESULT]')
    again: list[Any] = [talk[0], {**talk[1], "tool_calls": read["tool_calls"]}, *talk[2:]]
    again[2] = {**talk[2], "tool_call_id": short_id("call_of_another_length")}
    assert renderer.build_supervised_examples(again, ALL) == renderer.build_supervised_examples(talk, ALL)


R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[U]{{ m.content }}{% else %}"
    "[A]{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[A]<think>\n{% endif %}"
)
CLOSES = R1.replace("[A]{{ m.content.split('</think>')[-1] }}", "[A]<think></think>{{ m.content }}")
THOUGHT: Message = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}],
}


@pytest.mark.parametrize("template", [R1, CLOSES], ids=["left out", "closed at once"])
def test_an_answer_whose_prompt_opens_a_thought_is_trained_with_it(template: str) -> None:
    """Would catch R1 and its distillates, whose template leaves out what they think, refused or trained without it."""
    renderer = TemplateRenderer(tokenizer_with(template, "[U]", "[A]", "<s>", "</s>", eos="</s>", bos="<s>"))
    shown = spelled(renderer, [USER, THOUGHT, USER, THOUGHT])
    assert [each.partition("[A]<think>\n")[2] for each in shown] == ["[hm\n</think>\n\na</s>]"] * 2
    assert "hm" not in shown[1].partition("[A]<think>\n")[0]  # of an earlier turn
    assert spelled(renderer, [USER, TALK[1]])[0].endswith("[A]<think>\n\n</think>\n\n[a one</s>]")
    prompt = renderer.build_generation_prompt([USER]).to_ints()
    assert renderer.encoder.decode(prompt).endswith("[A]<think>\n")
    message, ending = renderer.parse_response(renderer.build_response([USER, THOUGHT]))
    assert (message["content"], ending) == (THOUGHT["content"], Termination.STOP_SEQUENCE)


def test_what_a_template_moves_to_the_last_turn_is_not_said_to_stay() -> None:
    """Would catch an earlier answer trained behind another prompt than the one it is sampled from."""
    template = (
        "{% set s = messages[0].content if messages[0].role == 'system' else '' %}"
        "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n"
        "{% if loop.last and m.role == 'user' %}{{ s }}{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    assert TemplateRenderer(tokenizer_with(CHATML)).has_extension_property
    assert not TemplateRenderer(tokenizer_with(template)).has_extension_property
    prompt = TemplateRenderer(tokenizer_with(template)).build_generation_prompt([SYSTEM, *TALK[:3]]).to_ints()
    assert get_tokenizer("cookhouse/tiny").decode(prompt) == (
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na one<|im_end|>\n"
        "<|im_start|>user\nBe brief.q<|im_end|>\n<|im_start|>assistant\n"
    )


def test_an_answer_follows_the_prompt_that_it_is_sampled_from() -> None:
    """Would catch a system message that a template writes for the last question alone, refused or left out."""
    template = (
        "{% set s = messages[0].content if messages[0].role == 'system' else '' %}"
        "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}[INST]"
        "{% if loop.last %}{{ s }} {% endif %}{{ m.content }}[/INST]{% else %}"
        " {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
    )
    renderer = TemplateRenderer(tokenizer_with(template, "[INST]", "[/INST]", "</s>", eos="</s>"))
    assert [each.replace("[INST]", "Q").replace("[/INST]", "A") for each in spelled(renderer, [SYSTEM, *TALK])] == [
        "QBe brief. qA[ a one</s>]",
        "QqA a one</s>QBe brief. qA[ a two</s>]",
    ]
