"""Comparisons as examples, and those from which nothing can be learned."""

import pytest

from cookhouse.chat import ComparisonRenderer, Label, Message
from cookhouse.data import (
    BadRows,
    ComparisonRow,
    build_renderer,
    comparison_from_row,
    render_comparisons,
    usable_comparisons,
)
from cookhouse.errors import BadRowsError
from cookhouse.models.tokenizers import get_tokenizer


def said(text: str) -> list[Message]:
    return [{"role": "assistant", "content": text}]


def row(a: str = "yes", b: str = "no", label: Label = "A", number: int = 1) -> ComparisonRow:
    return ComparisonRow(
        prompt=[{"role": "user", "content": "Say it."}],
        completion_a=said(a),
        completion_b=said(b),
        label=label,
        source=f"x.jsonl:{number}",
    )


@pytest.fixture
def renderer() -> ComparisonRenderer:
    return ComparisonRenderer(build_renderer("cookhouse/tiny", "human_ai"))


def ends(text: str) -> tuple[str, str]:
    """The first answer, and the label."""
    return text.split("Completion A ====\nAI: ")[1].split("\n")[0], text.rpartition("AI: ")[2]


def test_each_comparison_is_learned_in_both_orders_with_the_label_turned(renderer: ComparisonRenderer) -> None:
    rows = [row(), row(label="Tie", number=2)]
    examples = render_comparisons(rows, renderer, max_length=500, in_both_orders=True, seed=0)
    decode = get_tokenizer("cookhouse/tiny").decode
    said_of = [ends(str(decode(example.tokens_T.tolist()))) for example in examples]
    assert said_of == [("yes", "A"), ("no", "B"), ("yes", "T"), ("no", "T")]
    assert [example.num_trained_tokens for example in examples] == [1] * 4
    assert all(example.weights_T[-1] == 1.0 for example in examples)


def test_one_order_is_drawn_by_the_seed(renderer: ComparisonRenderer) -> None:
    rows = [row(number=number) for number in range(40)]
    labels = [
        [
            example.tokens_T[-1]
            for example in render_comparisons(rows, renderer, max_length=500, in_both_orders=False, seed=seed)
        ]
        for seed in (0, 0, 1)
    ]
    assert labels[0] == labels[1] != labels[2]
    assert 8 < labels[0].count(renderer.label_tokens[0]) < 32  # odds below 1 in 10,000 of a fair coin


def test_what_is_too_long_has_no_label_left(renderer: ComparisonRenderer) -> None:
    [example, _] = render_comparisons([row()], renderer, max_length=20, in_both_orders=True, seed=0)
    assert (example.num_trained_tokens, example.tokens_T.size) == (0, 20)


def test_ties_are_learned_left_out_or_refused() -> None:
    rows = [row(), row(label="Tie", number=2)]
    assert usable_comparisons(rows, "label") == (rows, 0)
    assert usable_comparisons(rows, "skip") == (rows[:1], 1)
    with pytest.raises(BadRowsError, match=r"x.jsonl:2: the label is Tie; set ties=label to learn ties"):
        usable_comparisons(rows, "refuse")
    bad = BadRows("skip")
    assert usable_comparisons(rows, "refuse", bad) == (rows[:1], 0)
    assert bad.count == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(a=" "), "completion_a is empty; a comparison needs two answers"),
        (row(b=""), "completion_b is empty; a comparison needs two answers"),
        (row(b="yes", label="B"), "both answers are the same, and B is said to be better"),
    ],
)
def test_what_teaches_nothing_is_refused_by_its_row(bad: ComparisonRow, reason: str) -> None:
    with pytest.raises(BadRowsError, match=f"x.jsonl:1: {reason}"):
        usable_comparisons([bad], "label")


def test_two_equal_answers_may_be_a_tie() -> None:
    same = comparison_from_row({"prompt": "p", "completion_a": "x", "completion_b": "x", "label": "tie"}, "x:1")
    assert usable_comparisons([same], "label") == ([same], 0)
