"""Comparisons in chat formats: what a preference model reads, and the token that says what it prefers."""

from pathlib import Path

import pytest

from cookhouse.chat import LABELS, Comparison, ComparisonRenderer, Message, get_renderer, in_other_order
from cookhouse.data import build_renderer
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

TINY = "cookhouse/tiny"

FAMILIES = {
    "qwen3": ("qwen3", "qwen3_disable_thinking", "qwen3_instruct"),
    "qwen3_5": ("qwen3_5", "qwen3_5_disable_thinking"),
    "llama3": ("llama3",),
    "deepseek_v3": ("deepseekv3",),
    "deepseek_v3_1": ("deepseekv3", "deepseekv3_disable_thinking", "deepseekv3_thinking"),
    "gpt_oss": ("gpt_oss_no_sysprompt", "gpt_oss_medium_reasoning"),
    "kimi_k2": ("kimi_k2", "kimi_k2_instruct"),
}


def said(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]


COMPARISON = Comparison(
    prompt=[{"role": "user", "content": "How are you?"}], completion_a=said("Well."), completion_b=said("What?")
)


def test_the_published_format_ends_where_the_label_is_said() -> None:
    renderer = ComparisonRenderer(build_renderer(TINY, "human_ai"))
    tokens, weights = renderer.build_example(COMPARISON, "B")
    tokenizer = get_tokenizer(TINY)
    assert tokenizer.decode(tokens) == (
        "Human: How are you?\nSystem: ==== Completion A ====\nAI: Well.\nSystem: ==== Completion B ====\nAI: What?\n"
        "System: ==== Preference ====\nAI: B"
    )
    assert weights == [0.0] * (len(tokens) - 1) + [1.0]
    assert tokens == [*renderer.build_prompt(COMPARISON), renderer.label_tokens[LABELS.index("B")]]


def test_the_other_order_is_of_the_same_answers() -> None:
    other = in_other_order(COMPARISON)
    assert (other.prompt, other.completion_a) == (COMPARISON.prompt, COMPARISON.completion_b)
    assert in_other_order(other) == COMPARISON


@pytest.mark.parametrize(("folder", "name"), [(folder, name) for folder, some in FAMILIES.items() for name in some])
def test_every_family_writes_comparisons_whose_labels_begin_with_tokens_of_their_own(
    shared: Path, folder: str, name: str
) -> None:
    # Catches a family that refuses the marks, and a prompt that ends elsewhere than sampling would begin to answer.
    renderer = get_renderer(name, get_tokenizer(str(shared / "tokenizers" / folder)))
    comparisons = ComparisonRenderer(renderer)
    assert len(set(comparisons.label_tokens)) == 3
    tokens = comparisons.build_prompt(COMPARISON)
    text = str(renderer.encoder.tokenizer.decode(tokens, clean_up_tokenization_spaces=False))
    marks = [
        "How are you?",
        "==== Completion A ====",
        "Well.",
        "==== Completion B ====",
        "What?",
        "==== Preference ====",
    ]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    decode = renderer.encoder.tokenizer.decode
    labels = [str(decode([token], clean_up_tokenization_spaces=False)).strip() for token in comparisons.label_tokens]
    assert labels[:2] == ["A", "B"]
    assert labels[2][0] == "T"
    role = comparisons._role
    marked: list[Message] = [
        *COMPARISON.prompt,
        {"role": role, "content": marks[1]},
        *COMPARISON.completion_a,
        {"role": role, "content": marks[3]},
        *COMPARISON.completion_b,
        {"role": role, "content": marks[5]},
    ]
    asked = renderer.build_generation_prompt(marked).to_ints()
    assert tokens[: len(asked)] == asked


def test_labels_that_one_token_does_not_tell_apart_are_refused() -> None:
    # A and B are one token here in words of which the first says nothing yet.
    renderer = build_renderer(TINY, "human_ai")
    build = renderer.build_supervised_examples

    def spelled(messages: list[Message], what: object) -> object:
        label = {"A": "xa", "B": "xb", "Tie": "y"}[str(messages[-1]["content"])]
        [(model_input, weights)] = build([*messages[:-1], {"role": "assistant", "content": "."}], what)  # type: ignore[arg-type]
        tokens = [*model_input.to_ints()[:-2], *[ord(letter) % 100 for letter in label]]
        return [(type(model_input).from_ints(tokens), weights)]

    renderer.build_supervised_examples = spelled  # type: ignore[method-assign, assignment]
    with pytest.raises(InputError, match=r"A, B, Tie begin with the tokens 20, 20, 21.*use another renderer"):
        ComparisonRenderer(renderer)
