"""Where datums lie that share a beginning."""

import numpy as np
import pytest
import torch

from cookhouse.engine.contract import TrainingDatum
from cookhouse.engine.model.attention import PackedLayout, SharedLayout
from cookhouse.engine.train.placing import place


def datums(*texts: str) -> list[TrainingDatum]:
    return [TrainingDatum(tokens_T=np.array([ord(c) for c in text]), loss_fn_inputs={}) for text in texts]


def laid(*texts: str, first: list[int]) -> str:
    placed = place(datums(*texts), first)
    # What each datum reads is itself, at its own positions.
    for datum, rows_T in zip(datums(*texts), placed.rows_D, strict=True):
        assert placed.tokens_N[rows_T].tolist() == datum.tokens_T.tolist()
        assert placed.positions_N[rows_T].tolist() == list(range(len(datum.tokens_T)))
    assert sum(placed.own_lengths) == len(placed.tokens_N)
    return "".join(map(chr, placed.tokens_N))


@pytest.mark.parametrize(
    ("texts", "first", "expected"),
    [
        (["abcd", "abxy"], [0, 0], "abcdxy"),
        (["abcd", "abxy"], [0, 1], "abcdabxy"),
        (["abcd", "ab"], [0, 0], "abcd"),
        (["ab", "abcd"], [0, 0], "abcd"),
        (["ab", "cd"], [0, 0], "abcd"),
        (["ab", "ac", "abx", "aby"], [0, 0, 2, 2], "abcabxy"),
    ],
)
def test_what_two_begin_with_is_laid_once_and_nothing_else(texts: list[str], first: list[int], expected: str) -> None:
    assert laid(*texts, first=first) == expected


@pytest.mark.parametrize("window", [None, 3])
def test_attention_over_shared_rows_is_that_of_whole_sequences(window: int | None) -> None:
    # Catches an answer that sees the other one, and a gradient of the prompt that lacks one of them.
    placed = place(datums("promptone", "promptanother", "else", "elsewhere"), [0, 0, 2, 2])
    rows_F = torch.from_numpy(np.concatenate(placed.rows_D))
    layout = placed.layout(torch.device("cpu"))
    assert isinstance(layout, SharedLayout)
    whole = PackedLayout([len(rows_T) for rows_T in placed.rows_D], torch.device("cpu"))
    chance = torch.Generator().manual_seed(0)
    shape = (len(placed.tokens_N), 2, 8)
    given = [torch.randn(shape, generator=chance, requires_grad=True) for _ in range(3)]
    found = layout.attend(0, *given, scaling=0.3, window=window)
    expected = whole.attend(0, *(each[rows_F] for each in given), scaling=0.3, window=window)
    torch.testing.assert_close(found[rows_F], expected)
    # Rows serve several sequences alike: each of their copies has its share of the gradient.
    weights = torch.randn(shape, generator=chance)
    times = torch.bincount(rows_F).double()[:, None, None]
    one = torch.autograd.grad((found * weights).sum(), given)
    other = torch.autograd.grad((expected * (weights / times)[rows_F]).sum(), given)
    for got, want in zip(one, other, strict=True):
        torch.testing.assert_close(got, want.to(got.dtype), rtol=1e-4, atol=1e-5)
