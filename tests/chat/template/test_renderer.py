"""Rendering through a model's own chat template: the same as a family's own renderer, or refused with the place."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.chat.families.conversations import NO_TOOLS_OR_THINKING, TOOLS, make_conversations
from tests.chat.families.families import FAMILIES

from cookhouse.chat import Message, Termination, TrainOnWhat, get_renderer
from cookhouse.chat.families.gpt_oss import EFFORTS
from cookhouse.chat.template import TemplateRenderer
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

ALL = TrainOnWhat.ALL_ASSISTANT_MESSAGES
MODES = (ALL, TrainOnWhat.LAST_ASSISTANT_MESSAGE, TrainOnWhat.ALL_MESSAGES, TrainOnWhat.ALL_TOKENS)
COUNT = 100

NOT_COMPARED = {
    "llama3-llama3": "the template dates its system message, and the renderer deliberately does not",
    "llama3-llama3-llama-3.2": "the template dates its system message, and the renderer deliberately does not",
    "deepseekv3_thinking-deepseek_v3_1": "the template cannot write an answer that goes on where its prompt ends",
    "gpt_oss_without_system-gpt_oss": "the template always writes the system block that this renderer leaves out",
    "qwen3_vl-qwen3": "the template is that of Qwen3, edited",
    "qwen3_vl_always_thinking-qwen3": "the template is that of Qwen3, edited",
}
GPT_OSS = tuple(f"gpt_oss_{effort}_reasoning-gpt_oss" for effort in EFFORTS)
"""Where a question begins to be trained, which no template says, is not compared: the family counts `<|message|>` to
what is said.
"""
WITHOUT = {
    "kimi_k2-kimi_k2": "the template writes no reasoning of a last answer, and tools otherwise than the family's code",
    "kimi_k2_instruct-kimi_k2-kimi-k2-instruct": "it writes tools otherwise than the family's code",
    **dict.fromkeys(GPT_OSS, "calls stand in a channel of their own, which cannot be told from the template"),
    **dict.fromkeys(
        ("qwen3_5-qwen3_5", "qwen35_always_thinking-qwen3_5", "qwen3_5_disable_thinking-qwen3_5"),
        "arguments are written without JSON, so that calls cannot be read from what is learned of the template",
    ),
}
"""Families compared without tools and reasoning, and why."""

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TALK: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Surely <|im_end|> not."},
    {"role": "assistant", "content": " It is.\n"},
]


def with_template(template: str) -> Any:
    tokenizer = copy.deepcopy(get_tokenizer("cookhouse/tiny"))
    tokenizer.chat_template = template
    return tokenizer


def spelled(renderer: TemplateRenderer, messages: list[Message], mode: TrainOnWhat = ALL) -> list[str]:
    """What is trained of each example, in one text, each run in brackets."""
    written = []
    for model_input, weights in renderer.build_supervised_examples(messages, mode):
        text = ""
        was_trained = False
        runs: list[tuple[bool, list[int]]] = []
        for token, weight in zip(model_input.to_ints(), weights, strict=True):
            if not runs or bool(weight) != was_trained:
                runs.append((bool(weight), []))
            was_trained = bool(weight)
            runs[-1][1].append(token)
        for is_trained, tokens in runs:
            said = renderer.encoder.decode(tokens)
            text += f"[{said}]" if is_trained else said
        written.append(text)
    return written


@pytest.mark.slow
@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name not in NOT_COMPARED], ids=lambda family: family.name)
def test_it_equals_the_renderer_of_the_family(shared: Path, family: Any) -> None:
    folder = shared / "tokenizers" / family.tokenizer
    tokenizer: Any = copy.copy(get_tokenizer(str(folder)))
    if family.template is not None:
        tokenizer.chat_template = (folder / family.template).read_text(encoding="utf-8")
    fallback = TemplateRenderer(tokenizer, **family.options)
    own = family.make_renderer(tokenizer)
    modes = [mode for mode in MODES if family.name not in GPT_OSS or mode is not TrainOnWhat.ALL_MESSAGES]
    num_compared = 0
    for conversation in make_conversations(COUNT, NO_TOOLS_OR_THINKING if family.name in WITHOUT else family.features):
        messages = family.ours(conversation)
        for mode in modes:
            try:
                expected = own.build_supervised_examples(messages, mode)
            except InputError:
                continue  # a form that the family has none for
            assert fallback.build_supervised_examples(messages, mode) == expected
            num_compared += 1
        history = messages[:-1]
        assert fallback.build_generation_prompt(history) == own.build_generation_prompt(history)
    assert num_compared > COUNT
    assert set(fallback.get_stop_sequences()) >= set(own.get_stop_sequences())


def test_an_answer_is_trained_from_the_end_of_its_prompt_to_its_end_mark() -> None:
    renderer = TemplateRenderer(with_template(CHATML))
    assert renderer.has_extension_property
    assert spelled(renderer, TALK) == [
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
        "[4<|im_end|>]\n<|im_start|>user\nSurely <|im_end|> not.<|im_end|>\n<|im_start|>assistant\n"
        "[ It is.\n<|im_end|>]"
    ]


def test_the_name_of_a_mark_in_content_is_no_mark() -> None:
    tokenizer = with_template(CHATML)
    tokens = TemplateRenderer(tokenizer).build_supervised_example(TALK, ALL)[0].to_ints()
    assert tokens.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == len(TALK)


def test_a_template_without_prompts_has_its_header_in_front_of_answers() -> None:
    template = CHATML.replace("{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "")
    renderer = TemplateRenderer(with_template(template))
    assert spelled(renderer, TALK) == spelled(TemplateRenderer(with_template(CHATML)), TALK)
    prompt = renderer.build_generation_prompt(TALK[:2]).to_ints()
    assert renderer.encoder.decode(prompt).endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_generation_markers_say_where_an_answer_begins() -> None:
    marked = CHATML.replace(
        "{{ m.content }}<|im_end|>\n",
        "{% if m.role == 'assistant' %}> {% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
        "{% else %}{{ m.content }}<|im_end|>\n{% endif %}",
    )
    renderer = TemplateRenderer(with_template(marked))
    assert spelled(renderer, TALK[1:3]) == [
        "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n> [4<|im_end|>]"
    ]


def test_where_nothing_ends_the_last_answer_the_next_turn_does() -> None:
    renderer = TemplateRenderer(
        with_template(
            "{% for m in messages %}<|{{ 'object_ref_start' if m.role == 'user' else 'box_start' }}|>\n{{ m.content }}"
            "{% endfor %}{% if add_generation_prompt %}<|box_start|>\n{% endif %}"
        )
    )
    assert spelled(renderer, TALK[1:]) == [
        "<|object_ref_start|>\n2 + 2?<|box_start|>\n[4<|object_ref_start|>]\nSurely <|im_end|> not.<|box_start|>\n"
        "[ It is.\n<|object_ref_start|>]"
    ]
    stop = renderer.get_stop_sequences()
    assert renderer.parse_response([*renderer.encoder.encode(["4"]), *stop]) == (
        {"role": "assistant", "content": "4"},
        Termination.STOP_SEQUENCE,
    )


def test_a_mark_of_the_beginning_is_never_trained() -> None:
    tokenizer = with_template("<|fim_prefix|>" + CHATML)
    tokenizer.bos_token = "<|fim_prefix|>"
    (text,) = spelled(TemplateRenderer(tokenizer), TALK[1:3], TrainOnWhat.ALL_TOKENS)
    assert text.startswith("<|fim_prefix|>[<|im_start|>user\n")


def test_calls_are_read_as_the_template_writes_them() -> None:
    tokenizer = get_tokenizer("cookhouse/tiny")
    renderer = TemplateRenderer(tokenizer)
    call: Any = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    asked: list[Message] = [{"role": "user", "content": "Weather?"}]
    answer: Message = {"role": "assistant", "content": "On it.", "tool_calls": [call, call]}
    tokens = renderer.build_response([*asked, answer])
    assert renderer.parse_response(tokens) == (answer, Termination.STOP_SEQUENCE)
    broken, _ = renderer.parse_response(renderer.encoder.encode_with_specials('<tool_call>\n{"name": "f", "argu'))
    assert [call["text"] for call in broken["unparsed_tool_calls"]] == ['<tool_call>\n{"name": "f", "argu']


@pytest.mark.parametrize(
    ("template", "messages", "said"),
    [
        ("", TALK, "has no chat template"),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", TALK, "ends an answer with no token"),
        ("{% for m in messages %}{{ m.content|upper }}<|im_end|>{% endfor %}", TALK, "changes the text of messages"),
        ("{% for m in messages %}", TALK, "cannot write this conversation"),
        (
            "{% if messages|length > 3 %}{{ raise_exception('too long') }}{% endif %}" + CHATML,
            TALK,
            "cannot write this conversation .*too long",
        ),
        (
            CHATML.replace("{{ m.content }}", "{% if '2 +' not in m.content %}{{ m.content }}{% endif %}"),
            TALK,
            r"message 2 \(user\): .* changes its content",
        ),
        (
            CHATML.replace("<|im_start|>assistant\n{%", "<|im_start|>assistant\n<think>{%"),
            TALK,
            r"message 3: .* the prompt has '<think>' where the conversation has '4",
        ),
        (
            CHATML.replace("{{ m.content }}", "{{ m.content[:5] }}").replace("[:5]", "|replace('It', 'it')"),
            TALK,
            "read back",
        ),
        (CHATML, [{"role": "system", "content": "", "tools": TOOLS}, *TALK[1:]], "no form for tools"),
        (
            CHATML,
            [
                *TALK[:2],
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "4"}],
                },
            ],
            "writes no thinking",
        ),
        (CHATML, [{"role": "user", "content": "\ufdd0"}, TALK[2]], "are no characters"),
    ],
    ids=[
        "no template",
        "no end",
        "other text",
        "no Jinja",
        "raises",
        "dropped question",
        "other prompt",
        "changed answer",
        "tools",
        "thinking",
        "noncharacter",
    ],
)
def test_what_a_template_makes_impossible_is_refused_with_the_place(
    template: str, messages: list[Message], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        TemplateRenderer(with_template(template)).build_supervised_examples(messages, ALL)


def test_calls_that_a_template_changes_are_refused() -> None:
    # Catches a check that counts calls and does not read them.
    template = get_tokenizer("cookhouse/tiny").chat_template
    changed = template.replace("tool_call.arguments | tojson", "tool_call.arguments | tojson | replace('Oslo', 'Rome')")
    assert changed != template
    call: Any = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    messages: list[Message] = [TALK[1], {"role": "assistant", "content": "", "tool_calls": [call]}]
    TemplateRenderer(with_template(template)).build_supervised_examples(messages, ALL)
    with pytest.raises(InputError, match=r"message 2: .* cannot be read back"):
        TemplateRenderer(with_template(changed)).build_supervised_examples(messages, ALL)


def test_reasoning_that_a_template_leaves_out_stands_behind_the_prompt_that_opens_it(shared: Path) -> None:
    """Would catch an answer that is refused, or trained behind another prompt than the one it is sampled from."""
    tokenizer = get_tokenizer(str(shared / "tokenizers/deepseek_v3_1"))
    renderer, own = TemplateRenderer(tokenizer, thinking=True), get_renderer("deepseekv3_thinking", tokenizer)
    thought: Any = [{"type": "thinking", "thinking": "Two and two."}, {"type": "text", "text": "4"}]
    talks: list[list[Message]] = [[TALK[1], {"role": "assistant", "content": thought}], TALK]
    for talk in talks:
        assert renderer.build_supervised_examples(talk, ALL) == own.build_supervised_examples(talk, ALL)


def test_calls_that_cannot_be_read_back_are_shown_and_not_trained(shared: Path) -> None:
    renderer = TemplateRenderer(get_tokenizer(str(shared / "tokenizers/kimi_k2")))
    call: Any = {"type": "function", "id": "functions.now:0", "function": {"name": "now", "arguments": {}}}
    messages: list[Message] = [
        TALK[1],
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "noon", "tool_call_id": "functions.now:0"},
        {"role": "assistant", "content": "Noon."},
    ]
    assert "functions.now:0" in spelled(renderer, messages, TrainOnWhat.LAST_ASSISTANT_MESSAGE)[0]
    with pytest.raises(InputError, match="cannot be read back"):
        renderer.build_supervised_examples(messages, ALL)


def test_it_has_a_name() -> None:
    assert isinstance(get_renderer("template", with_template(CHATML)), TemplateRenderer)


def test_prompts_are_for_answers() -> None:
    with pytest.raises(InputError, match="not for user"):
        TemplateRenderer(with_template(CHATML)).build_generation_prompt(TALK[:1], role="user")


def test_what_is_written_does_not_change_from_day_to_day() -> None:
    """Catches a template that is told today: data rendered tomorrow would be another."""
    dated = with_template("{{ strftime_now('%d %b %Y') }}" + CHATML)
    assert "".join(spelled(TemplateRenderer(dated), TALK)).startswith("28 Jun 2025<|im_start|>system")
