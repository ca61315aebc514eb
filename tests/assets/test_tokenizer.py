"""The embedded tokenizer beside the real Qwen3 one."""

import json
import random
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from transformers import AutoTokenizer

from cookhouse.assets import TINY_MODEL, resolve_model

FOLDER = Path(resolve_model(TINY_MODEL))

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 3, "b": 4}}}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one turn": [{"role": "user", "content": "What is 3 + 4?"}, {"role": "assistant", "content": "7"}],
    "system and two turns": [
        {"role": "system", "content": "Be polite."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "<think>\nGreet.\n</think>\n\nHello!"},
        {"role": "user", "content": "Again?\n\n日本"},
        {"role": "assistant", "content": "Hello again!"},
    ],
    "tool call": [
        {"role": "user", "content": "Add 3 and 4."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "7"},
        {"role": "tool", "content": "seven"},
        {"role": "assistant", "content": "It is 7."},
    ],
    "prompt": [{"role": "user", "content": "Sort: b a"}],
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def qwen3(shared: Path) -> Any:
    return AutoTokenizer.from_pretrained(shared / "tokenizers" / "qwen3")


def test_special_tokens_are_qwen3s_and_last(tokenizer: Any, qwen3: Any) -> None:
    """Catches a special token that is missing, split into pieces, or hidden where Qwen3 shows it."""
    ours = sorted(tokenizer.added_tokens_decoder.items())
    theirs = sorted(qwen3.added_tokens_decoder.items())
    assert [(token.content, token.special) for _, token in ours] == [
        (token.content, token.special) for _, token in theirs
    ]
    assert [index for index, _ in ours] == list(range(len(tokenizer) - len(ours), len(tokenizer)))
    assert all(tokenizer.encode(token.content) == [index] for index, token in ours)
    assert tokenizer.special_tokens_map == qwen3.special_tokens_map
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token) == ("<|im_end|>", "<|endoftext|>", None)


def test_text_is_split_as_qwen3_splits_it(tokenizer: Any, qwen3: Any) -> None:
    """Catches a different normalizer or splitting, such as digits in groups."""
    ours, theirs = (json.loads(each.backend_tokenizer.to_str()) for each in (tokenizer, qwen3))
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        assert ours[part] == theirs[part]
    assert tokenizer.tokenize("x = 2048") == ["x", "Ġ=", "Ġ", "2", "0", "4", "8"]


def test_any_text_survives_the_round_trip(tokenizer: Any) -> None:
    """Catches a byte that is missing from the vocabulary; text comes back in its NFC form, as with Qwen3."""
    rng = random.Random(0)
    for _ in range(200):
        # Every plane but the surrogates, which are no characters.
        points = (
            rng.choice((rng.randrange(0x20, 0x7F), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))
            for _ in range(30)
        )
        text = "".join(map(chr, points))
        assert tokenizer.decode(tokenizer.encode(text)) == normalize("NFC", text)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_template_gives_qwen3s_text(name: str, tokenizer: Any, qwen3: Any) -> None:
    """Catches a chat template that drifted from Qwen3's: tools, thinking, generation prompt."""
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    options: tuple[dict[str, Any], ...] = (
        {},
        {"add_generation_prompt": True},
        {"add_generation_prompt": True, "enable_thinking": False},
        {"tools": tools},
    )
    for option in options:
        ours, theirs = (
            each.apply_chat_template(CONVERSATIONS[name], tokenize=False, **option) for each in (tokenizer, qwen3)
        )
        assert ours == theirs


def test_special_text_can_stay_plain_text(tokenizer: Any) -> None:
    """Catches a vocabulary in which a user who types an end token would end the turn."""
    tokens = tokenizer.encode("a<|im_end|>b", split_special_tokens=True)
    assert tokenizer.eos_token_id not in tokens
    assert tokenizer.decode(tokens) == "a<|im_end|>b"
