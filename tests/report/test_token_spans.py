"""Tokens with numbers become spans: their text, their color, and their exact values."""

import math
from collections.abc import Sequence

from cookhouse.chat.token_texts import TokenTexts
from cookhouse.report.token_colors import Quantity, gaps, scale_of
from cookhouse.report.token_spans import TokenRun, Wording, scales_of, token_spans


def _decode(tokens: Sequence[int]) -> str:
    parts = [b"<end>" if token == 256 else bytes([token]) for token in tokens]
    return b"".join(parts).decode(errors="replace")


BYTES = Wording(texts=TokenTexts(_decode), special={256})


def test_a_character_of_several_tokens_is_one_span_with_all_their_values() -> None:
    # Catches half a character shown alone, and values of its tokens that are lost or averaged.
    run = TokenRun(tokens=[*"a€".encode(), 256], values={Quantity.LOGPROB: [-0.5, -1.0, -3.0, -0.25, 0.0]}, start=7)
    spans = token_spans(run, BYTES)
    assert [span.text for span in spans] == ["a", "€", "<end>"]
    assert [span.is_special for span in spans] == [False, False, True]
    assert spans[1].told == "token 8 to 10 · id 226, 130, 172 · logprob -1, -3, -0.25"
    scales = scales_of([run])
    assert scales[Quantity.LOGPROB].end == 5
    assert spans[1].classes(scales) == "token l-n6", "the color of the least likely of its tokens"
    assert spans[2].classes(scales) == "token special"


def test_what_was_not_measured_is_neither_colored_nor_invented() -> None:
    # Catches zeros that stand for nothing: an advantage of a prompt token, a NaN.
    values = {Quantity.ADVANTAGE: [None, 0.0, math.nan, 1.5]}
    run = TokenRun(tokens=[97, 98, 99, 100], values=values)
    spans = token_spans(run, BYTES)
    scales = scales_of([run])
    assert [*scales] == [Quantity.ADVANTAGE]
    assert [span.classes(scales) for span in spans] == ["token", "token", "token", "token a-p8"]
    assert [span.told.split(" · ")[-1] for span in spans] == [
        "advantage -",
        "advantage 0",
        "advantage nan",
        "advantage 1.5",
    ]


def test_without_a_tokenizer_ids_are_shown() -> None:
    assert [span.text for span in token_spans(TokenRun(tokens=[5, 17]), None)] == ["5 ", "17 "]


def test_an_image_is_one_span() -> None:
    spans = token_spans(TokenRun(tokens=[97, None, None, 98], values={Quantity.WEIGHT: [0, None, None, 1]}), BYTES)
    assert [(span.text, span.position) for span in spans] == [("a", 0), ("[image, 2 tokens]", 1), ("b", 3)]
    assert [span.classes({}) for span in spans] == ["token untrained", "token special untrained", "token"]


def test_control_characters_are_spelled() -> None:
    # Catches a terminal code, or one that turns the direction of writing, in a page.
    spans = token_spans(TokenRun(tokens=[0x1B, 0x0A, *"\u202e".encode()]), BYTES)
    assert [span.text for span in spans] == ["\\x1b", "\n", "\\u202e"]


def test_the_ends_of_a_scale_are_said() -> None:
    # Catches a legend that ends elsewhere than the colors.
    scale = scale_of(Quantity.ADVANTAGE, [-0.3, 1.7, None])
    assert scale is not None
    assert (scale.steps[0], scale.steps[10], scale.steps[20]) == (("a-n10", "−2"), ("", "0"), ("a-p10", "2"))
    assert scale.css_class(-2.0) == "a-n10"
    assert scale.css_class(math.inf) == "a-p10"
    logprobs = scale_of(Quantity.LOGPROB, [-30.0, -0.1])
    assert logprobs is not None
    assert [label for _, label in logprobs.steps if label] == ["−10 and less", "0"], "one outlier leaves others color"


def test_rounding_errors_have_no_color() -> None:
    # Catches a gap of a ten-millionth that looks like a broken engine.
    scale = scale_of(Quantity.GAP, [1e-7, -1e-7])
    assert scale is not None
    assert scale.css_class(1e-7) == ""


def test_scales_of_any_size_are_round() -> None:
    for largest, end in ((0.011, 0.02), (0.05, 0.05), (1.0, 1.0), (3.0, 5.0), (7.0, 10.0), (1e30, 1e30)):
        scale = scale_of(Quantity.ADVANTAGE, [largest])
        assert scale is not None
        assert scale.end == end
    assert scale_of(Quantity.ADVANTAGE, [math.inf]) is not None
    assert scale_of(Quantity.ADVANTAGE, [None, math.nan]) is None


def test_a_gap_needs_both_sides() -> None:
    assert gaps([-1.0, None], [-1.5, -1.0]) == [0.5, None]
    assert gaps(None, [-1.0]) is None
