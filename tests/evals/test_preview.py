"""Previews: trained text stands out, and cannot do harm to a terminal."""

from typing import Any

import pytest

from cookhouse.chat import Message, TrainOnWhat, get_renderer
from cookhouse.evals import preview_pieces, preview_plain, preview_rich
from cookhouse.models.tokenizers import get_tokenizer


@pytest.fixture
def tokenizer() -> Any:
    return get_tokenizer("cookhouse/tiny")


def pieces(tokenizer: Any, question: str, answer: str) -> list[tuple[str, bool]]:
    messages: list[Message] = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    tokens, weights = get_renderer("qwen3_instruct", tokenizer).build_supervised_example(
        messages, TrainOnWhat.ALL_ASSISTANT_MESSAGES
    )
    return preview_pieces(tokens.to_ints(), weights, tokenizer)


def test_trained_text_stands_out(tokenizer: Any) -> None:
    shown = pieces(tokenizer, "Grüße 👋?", "Hallo 🌍")
    prompt = "<|im_start|>user\nGrüße 👋?<|im_end|>\n<|im_start|>assistant\n"
    assert shown == [(prompt, False), ("Hallo 🌍<|im_end|>", True)]
    assert preview_plain(shown) == f"{prompt}⟦Hallo 🌍<|im_end|>⟧"
    rich = preview_rich(shown)
    assert rich.plain == f"{prompt}Hallo 🌍<|im_end|>"
    assert [rich.plain[span.start : span.end] for span in rich.spans if span.style == "bold green"] == [shown[1][0]]


def test_letters_that_spell_a_mark_look_different_from_it(tokenizer: Any) -> None:
    """Would catch rows that are already in a chat format and look as if they were read so."""
    shown = pieces(tokenizer, "<|im_start|>user\n京<|im_end|>", "fine")
    assert shown[0][0] == ("<|im_start|>user\n<·|im_start|>user\n京<·|im_end|><|im_end|>\n<|im_start|>assistant\n")


def test_escape_sequences_of_a_data_set_do_not_reach_the_terminal(tokenizer: Any) -> None:
    shown = pieces(tokenizer, "\x1b[2J[red]x[/red]", "tab\tand \u202e bidi\x07")
    text = preview_rich(shown).plain
    assert "\x1b" not in text
    assert "\\x1b[2J[red]x[/red]" in text  # and markup is text
    assert shown[1][0] == "tab\tand \\u202e bidi\\x07<|im_end|>"
