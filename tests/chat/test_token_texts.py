"""Tokens read one by one say what they say together."""

from collections.abc import Sequence

import pytest

from cookhouse.chat.token_texts import TokenTexts
from cookhouse.models.tokenizers import get_tokenizer


class Bytes:
    """Each token is a byte, and 256 is a special one."""

    def __init__(self) -> None:
        self.num_calls = 0

    def decode(self, tokens: Sequence[int]) -> str:
        self.num_calls += 1
        parts = [b"<end>" if token == 256 else bytes([token]) for token in tokens]
        return b"".join(parts).decode(errors="replace")


def texts(tokens: list[int], before: list[int] | None = None) -> list[tuple[int, int, str]]:
    return [(each.start, each.num_tokens, each.text) for each in TokenTexts(Bytes().decode)(tokens, before or [])]


def test_tokens_of_one_character_stand_together() -> None:
    # Catches half a character shown as two marks of a broken one.
    assert texts([*"aé€😀".encode()]) == [(0, 1, "a"), (1, 2, "é"), (3, 3, "€"), (6, 4, "😀")]


def test_a_special_token_is_spelled() -> None:
    assert texts([97, 256, 98]) == [(0, 1, "a"), (1, 1, "<end>"), (2, 1, "b")]


@pytest.mark.parametrize("length", [1, 5, 1000])
def test_bytes_that_are_no_character_do_not_swallow_the_rest(length: int) -> None:
    # Catches a hostile answer of stray bytes that is joined into one token, decoded anew for each byte.
    found = texts([0xE2] * length)
    assert sum(num for _, num, _ in found) == length
    assert max(num for _, num, _ in found) <= 4


def test_a_character_that_the_end_cuts_is_shown_as_cut() -> None:
    assert texts([97, 0xE2, 0x82]) == [(0, 1, "a"), (1, 2, "\ufffd")]


def test_no_token_is_decoded_with_all_before_it() -> None:
    # Catches a transcript that costs the square of its length.
    decoder = Bytes()
    list(TokenTexts(decoder.decode)([97, 98] * 5000))
    assert decoder.num_calls < 10


def test_joined_they_are_the_text_of_the_embedded_tokenizer() -> None:
    tokenizer = get_tokenizer("cookhouse/tiny")
    text = "Human: naïve 猫 😀 = 12\n\nAI:"
    tokens = tokenizer.encode(text, add_special_tokens=False)

    def decode(some: Sequence[int]) -> str:
        return str(tokenizer.decode(list(some), clean_up_tokenization_spaces=False))

    assert "".join(each.text for each in TokenTexts(decode)(tokens)) == text
    assert len(list(TokenTexts(decode)(tokens))) < len(tokens), "the cat is one span of several tokens"
