"""Rows are held out by prompt: with all rows of it, and from each kind of rows."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from cookhouse.data import LabeledRow, PromptRow, held_out_prompts, is_drawn, prompt_key
from cookhouse.errors import InputError


def asking(number: int) -> list[Any]:
    return [{"role": "user", "content": f"say {number}"}]


def rows(*numbers: int) -> list[PromptRow]:
    return [PromptRow(prompt=asking(number), answer=None, source=f"f:{number}") for number in numbers]


def judged(is_good: bool, *numbers: int) -> list[LabeledRow]:
    return [
        LabeledRow(prompt=asking(n), completion=[{"role": "assistant", "content": "x"}], is_good=is_good, source="f")
        for n in numbers
    ]


def test_prompts_go_with_all_of_their_rows_and_the_share_is_of_the_rows() -> None:
    held_out = held_out_prompts(rows(*(n % 100 for n in range(600))), 0.1, seed=0)
    assert len(held_out) == 10


def test_rows_of_one_prompt_each_are_those_that_the_seed_draws() -> None:
    """Catches another choice than before for data in which no prompt comes twice: its losses are to stay."""
    drawn = np.random.default_rng(3).permutation(40)[:8]
    assert held_out_prompts(rows(*range(40)), 0.2, seed=3) == {prompt_key(asking(int(n))) for n in drawn}


def test_a_prompt_that_most_rows_have_is_never_held_out_with_them() -> None:
    """Catches a draw of prompts that leaves nothing to train on."""
    some = rows(*[0] * 90, *range(1, 11))
    for seed in range(20):
        held_out = held_out_prompts(some, 0.1, seed=seed)
        assert held_out == {prompt_key(asking(number)) for number in range(1, 11)}


@pytest.mark.parametrize(("num_good", "num_bad"), [(200, 10), (1000, 20), (3, 2)])
def test_each_kind_has_its_share(num_good: int, num_bad: int) -> None:
    good, bad = judged(True, *range(num_good)), judged(False, *range(num_good, num_good + num_bad))
    held_out = held_out_prompts([*good, *bad], 0.1, 0, lambda row: row.is_good)
    found = Counter(row.is_good for row in [*good, *bad] if prompt_key(row.prompt) in held_out)
    assert found == {True: max(1, round(num_good * 0.1)), False: max(1, round(num_bad * 0.1))}


def test_kinds_that_share_their_prompts_are_held_out_together() -> None:
    """Catches a prompt whose good answer is held out and whose bad one is trained on, and a share taken twice."""
    both = [*judged(True, *range(20)), *judged(False, *range(20))]
    assert len(held_out_prompts(both, 0.1, 0, lambda row: row.is_good)) == 2


def test_rows_of_one_prompt_cannot_be_apart() -> None:
    with pytest.raises(InputError, match="6 rows share too few prompts \\(1\\) to be apart; give test_path"):
        held_out_prompts(rows(*[1] * 6), 0.5, seed=0)


def test_a_draw_without_the_rows_hangs_on_prompt_and_seed_alone() -> None:
    """The share of 2000 prompts is within 5 standard deviations of the fraction: that fails once in two million."""
    drawn = [n for n in range(2000) if is_drawn(asking(n), 0.1, seed=0)]
    assert abs(len(drawn) - 200) < 5 * (2000 * 0.1 * 0.9) ** 0.5
    assert drawn == [n for n in range(2000) if is_drawn(asking(n), 0.1, seed=0)]
    assert drawn != [n for n in range(2000) if is_drawn(asking(n), 0.1, seed=1)]
