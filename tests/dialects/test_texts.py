"""Text as it grows, and tokens by themselves."""

import itertools

import pytest

from cookhouse.assets import TINY_MODEL
from cookhouse.chat import Encoder
from cookhouse.dialects.texts import StopCutter, TokenTexts
from cookhouse.models.tokenizers import get_tokenizer


@pytest.mark.parametrize(
    ("text", "stops", "kept"),
    [
        ("one two", ("two",), "one "),
        ("one two", ("three",), "one two"),
        ("aab", ("ab",), "a"),
        ("abac abab", ("abab", "c a"), "aba"),
        ("ends in a beginn", ("beginning",), "ends in a beginn"),
        ("🙂🙂", ("🙂",), ""),
    ],
)
def test_text_ends_before_the_first_stop_however_it_comes(text: str, stops: tuple[str, ...], kept: str) -> None:
    """Would catch a stop that is given away letter by letter, or one found later than another."""
    for cuts in itertools.chain.from_iterable(itertools.combinations(range(1, len(text)), n) for n in range(4)):
        places = [0, *cuts, len(text)]
        cutter = StopCutter(stops)
        said = "".join(cutter.feed(text[start:stop]) for start, stop in itertools.pairwise(places))
        assert said + cutter.finish() == kept
        assert cutter.is_cut == (kept != text)


def test_nothing_is_held_that_no_stop_begins_with() -> None:
    cutter = StopCutter(("stop",))
    assert cutter.feed("no s") == "no "
    assert cutter.feed("ign") == "sign"


def test_every_token_has_its_bytes() -> None:
    encoder = Encoder(get_tokenizer(TINY_MODEL))
    texts = TokenTexts(encoder)
    text = " naïve – 中文 🙂"
    tokens = encoder.encode([text])
    assert b"".join(texts[token].raw or b"" for token in tokens).decode() == text
    assert any("�" in texts[token].spelled for token in tokens)
    assert texts.is_special(encoder.id_of("<|im_end|>"))
    assert not texts.is_special(tokens[0])
