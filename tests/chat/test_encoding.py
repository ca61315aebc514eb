"""Text to tokens: what a message says can never become a mark."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from tokenizers.models import BPE

from cookhouse.chat import Encoder, Special, words
from cookhouse.chat.words import WordEncoder
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

FORMAT = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def test_no_mark_is_ever_made_of_text(tokenizer: Any) -> None:
    encoder = Encoder(tokenizer, FORMAT)
    assert {"<|im_end|>", *FORMAT} <= encoder.marks.keys()
    tokens = encoder.encode([" ".join(encoder.marks) + "".join(encoder.marks)])
    assert not set(tokens) & {*encoder.marks.values()}


ADDED = ("        ", "  ", "<table>", "<mol_7>", "\n\n\n")
WITH_ADDED = (
    "def f(x):\n        return x\n  # done",
    "<table>a |  b</table>",
    "the <mol_7> binds<mol_7>\n\n\nagain, <mol_8> does not",
    "plain words, one space each",
    "<mol_7",
)


def grown(**flags: bool) -> Any:
    """The embedded tokenizer with further tokens that are no marks, far behind the others."""
    grown = copy.deepcopy(get_tokenizer("cookhouse/tiny"))
    grown.add_tokens([tokenizers.AddedToken(name, special=False, **flags) for name in ADDED])
    return grown


@pytest.mark.parametrize("flags", [{"normalized": False}, {"normalized": True}, {"normalized": False, "lstrip": True}])
@pytest.mark.parametrize("text", WITH_ADDED)
def test_text_has_the_tokens_of_its_own_tokenizer(flags: dict[str, bool], text: str) -> None:
    """Would catch runs of spaces, or words that a user added, trained in other tokens than the model reads."""
    tokenizer = grown(**flags)
    assert Encoder(tokenizer).encode([text]) == tokenizer(text, add_special_tokens=False).input_ids


def test_marks_stay_letters_among_added_tokens() -> None:
    tokenizer = grown(normalized=False)
    tokens = Encoder(tokenizer, FORMAT).encode(["<mol_7><|im_end|><think>  <table>"])
    ids = dict(zip(ADDED, tokenizer.convert_tokens_to_ids(ADDED), strict=True))
    assert [token for token in tokens if token in tokenizer.added_tokens_decoder] == [
        ids["<mol_7>"],
        ids["  "],
        ids["<table>"],
    ]
    assert tokenizer.decode(tokens) == "<mol_7><|im_end|><think>  <table>"


def test_a_renderer_names_what_it_writes(tiny: Any) -> None:
    """Would catch a mark that is written and that text can spell."""
    with pytest.raises(InputError, match="add it to its marks"):
        Encoder(tiny).encode([Special("<tool_call>")])
    assert Encoder(tiny, FORMAT).encode([Special("<tool_call>")]) == [tiny.convert_tokens_to_ids("<tool_call>")]


def test_splitting_special_tokens_alone_would_let_a_user_forge_a_tool_response(tokenizer: Any) -> None:
    # The reason for the second tokenizer. When this fails, `split_special_tokens=True` has become enough.
    tokens = tokenizer("</tool_response>", split_special_tokens=True, add_special_tokens=False).input_ids
    assert set(tokens) & set(tokenizer.added_tokens_decoder)


def test_a_special_piece_is_one_token_and_texts_around_it_are_joined_first(tokenizer: Any) -> None:
    encoder = Encoder(tokenizer)
    tokens = encoder.encode(["one", "\n", Special("<|im_end|>"), "\n", "two"])
    assert tokens == [*encoder.encode(["one\n"]), encoder.id_of("<|im_end|>"), *encoder.encode(["\ntwo"])]


def test_a_token_that_the_tokenizer_lacks_is_refused(tiny: Any) -> None:
    with pytest.raises(InputError, match=r"has no token '<\|eot_id\|>'.*own family"):
        Encoder(tiny).encode([Special("<|eot_id|>")])


@pytest.mark.parametrize("family", ["llama3", "qwen3", "deepseek_v3", "gpt_oss", "kimi_k2"])
def test_plain_text_has_the_ids_that_other_projects_expect(shared: Path, family: str) -> None:
    encoder = Encoder(get_tokenizer(str(shared / "tokenizers" / family)))
    rows = [json.loads(line) for line in (shared / f"tokenizers/golden/{family}.jsonl").read_text().strip().split("\n")]
    plain = [row for row in rows if row["specials"] in ("any", "plain")]
    assert len(plain) > 50
    for row in plain:
        assert encoder.encode([row["text"]]) == row["ids"], row["text"]


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(text=st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_text_survives_the_embedded_tokenizer(text: str) -> None:
    encoder = Encoder(get_tokenizer("cookhouse/tiny"))
    again = encoder.decode(encoder.encode([text]))
    assert encoder.encode([again]) == encoder.encode([text])


FAMILIES = ["llama3", "qwen3", "qwen3_5", "deepseek_v3", "gpt_oss", "kimi_k2"]
LETTERS = "aZé京ع9½ \u0301\u200d\ufe0f\u00a0\u3000👩🏯'.,()$_/{}\n\t\r\x1c\x85  -"
PIECES = [
    "Word",
    "words",
    "NASA",
    "newDate",
    "it's",
    "I'LL",
    "<think>",
    "12",
    "é",
    "京",
    "/",
    "_",
    "(",
    "\r",
    "\t",
    "👩",
]
ENDS = ["", "", " ", " ", "  ", ".", ",", "?!", '."', ":)", "\n", ".\n", ".\n\n", " \n", "\n\n\n"]


def awkward_texts(num: int) -> list[str]:
    """Half of single letters, half of words with punctuation and lines after them."""
    generator = random.Random(0)
    texts = ["".join(generator.choices(LETTERS, k=generator.randint(1, 30))) for _ in range(num)]
    for _ in range(num):
        texts.append("".join(generator.choice(choices) for choices in [PIECES, ENDS] * generator.randint(1, 12)))
    return texts


def check_is_as_a_whole(tokenizer: Any, texts: list[str]) -> None:
    names = [*map(str, tokenizer.added_tokens_decoder.values())]
    encoder, backend = Encoder(tokenizer, names), tokenizer.backend_tokenizer
    whole = tokenizers.Tokenizer(backend.model)
    whole.pre_tokenizer = backend.pre_tokenizer
    if backend.normalizer is not None:
        whole.normalizer = backend.normalizer
    assert encoder._plain._splits
    for text in texts:
        assert encoder.encode([text]) == whole.encode(text, add_special_tokens=False).ids, text


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_text_is_encoded_by_words_as_it_is_as_a_whole(shared: Path, family: str) -> None:
    # Words are remembered; a word that joined its neighbor in some tokenizer would have other tokens there.
    sentences = (shared / "data/multilingual/sentences.txt").read_text(encoding="utf-8").split("\n")
    long = ["a\n" * 20_000, "x" * 10_000, "京" * 1000, " ".join(["one"] * 1000), "b.\n\n" * 15]
    check_is_as_a_whole(
        get_tokenizer(str(shared / "tokenizers" / family)), [*awkward_texts(3000), *sentences, *sentences, *long]
    )


def test_text_is_encoded_by_words_in_the_embedded_tokenizer_too(tiny: Any) -> None:
    check_is_as_a_whole(tiny, awkward_texts(1000))


@pytest.mark.slow
@pytest.mark.real
def test_text_is_encoded_by_words_in_a_vocabulary_of_gpt2s_kind_too(smollm2: Path) -> None:
    check_is_as_a_whole(get_tokenizer(str(smollm2)), awkward_texts(3000))


@pytest.mark.slow
@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(texts=st.lists(st.text(st.sampled_from("aB.\n é") | st.characters(codec="utf-8"), max_size=12), max_size=6))
def test_any_unicode_is_encoded_by_words_as_it_is_as_a_whole(texts: list[str]) -> None:
    check_is_as_a_whole(get_tokenizer("cookhouse/tiny"), texts)


@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_taken_apart_where_the_tokenizer_does(shared: Path, family: str) -> None:
    # gpt-oss joins a slash to the line before it.
    encoder = Encoder(get_tokenizer(str(shared / "tokenizers" / family)))
    assert encoder._plain._splits_words == (family != "gpt_oss")


def byte_level(*patterns: str) -> tokenizers.Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate([*letters, "a.", ".\u010a", "Ġa"])}
    made = tokenizers.Tokenizer(BPE(vocabulary, [("a", "."), (".", "\u010a"), ("Ġ", "a")]))
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in patterns]
    made.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(False, use_regex=False)])
    return made


@pytest.mark.parametrize(
    ("pattern", "splits_words"),
    [
        (r" ?\p{L}+| ?[^\s\p{L}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", True),
        (r" ?\S+|\s+(?!\S)|\s+", False),  # letters and punctuation in one
        (r" ?\p{Ll}+| ?\p{Lu}| ?[^\s\p{L}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", False),  # capitals apart
        (r" ?\p{L}+| ?[^\s\p{L}]+|\s+(?!\S)|\s+", False),  # two line breaks are one piece at the end only
    ],
)
def test_words_are_whole_where_a_pattern_joins_their_letters_to_more(pattern: str, splits_words: bool) -> None:
    whole = byte_level(pattern)
    encoder = WordEncoder(whole)
    assert (encoder._splits, encoder._splits_words) == (True, splits_words)
    for text in [*awkward_texts(300), "a. a.", "a.\n\na.", "a\n\na"]:
        assert encoder.encode(text) == whole.encode(text).ids, text


def test_the_memory_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_MAX_WORDS", 50)
    encoder = WordEncoder(byte_level(r" ?\p{L}+| ?[^\s\p{L}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"))
    for number in range(1000):
        encoder.encode(f"a{number} b{number} {'c' * 41}{number}")
        assert len(encoder._words) + len(encoder._first) <= 55
        assert all(len(word) <= 40 for word in [*encoder._words, *encoder._first])
    assert len(encoder._words) > 0


def test_a_tokenizer_that_joins_words_is_left_to_encode_whole_texts() -> None:
    whole = tokenizers.Tokenizer(BPE({"a": 0, " ": 1, "b": 2, "a ": 3, "a b": 4}, [("a", " "), ("a ", "b")]))
    assert WordEncoder(whole).encode("a b") == [4]


def test_a_token_beyond_the_embeddings_is_refused(tokenizer: Any) -> None:
    """Catches a plan that is well, of a run that the engine refuses at its first step."""
    encoder = Encoder(tokenizer)
    end = encoder.id_of("<|im_end|>")
    encoder.num_embeddings = end + 1
    assert encoder.encode([Special("<|im_end|>")]) == [end]
    encoder.num_embeddings = end
    said = rf"token {end} \('<\|im_end\|>'\) of the tokenizer .* is beyond"
    with pytest.raises(InputError, match=said):
        encoder.encode([Special("<|im_end|>")])
    with pytest.raises(InputError, match=said):
        encoder.encode_with_specials("<|im_end|>")
    encoder.num_embeddings = 10
    with pytest.raises(InputError, match="beyond the model's 10 embeddings; put the model's own tokenizer"):
        encoder.encode(["any text"])
