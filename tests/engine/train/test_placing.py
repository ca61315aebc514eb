"""Catches datums misplaced where they share a beginning, or lost, doubled or over budget when passes are formed."""

import numpy as np
import pytest
import torch

from cookhouse.engine.contract import TrainingDatum
from cookhouse.engine.model.attention import PackedLayout, SharedLayout
from cookhouse.engine.train.placing import DatumGroup, groups_of, pack, place


def datums(*texts: str) -> list[TrainingDatum]:
    return [TrainingDatum(tokens_T=np.array([ord(c) for c in text]), loss_fn_inputs={}) for text in texts]


def laid(*texts: str, joined: list[int]) -> str:
    placed = place(datums(*texts), [bool(each) for each in joined])
    # What each datum reads is itself, at its own positions.
    for datum, rows_T in zip(datums(*texts), placed.rows_D, strict=True):
        assert placed.tokens_N[rows_T].tolist() == datum.tokens_T.tolist()
        assert placed.positions_N[rows_T].tolist() == list(range(len(datum.tokens_T)))
    assert sum(placed.own_lengths) == len(placed.tokens_N)
    return "".join(map(chr, placed.tokens_N))


@pytest.mark.parametrize(
    ("texts", "joined", "expected"),
    [
        (["abcd", "abxy"], [0, 1], "abcdxy"),
        (["abcd", "abxy"], [0, 0], "abcdabxy"),
        (["abcd", "ab"], [0, 1], "abcd"),
        (["ab", "abcd"], [0, 1], "abcd"),
        (["ab", "cd"], [0, 1], "abcd"),
        (["ab", "ac", "abx", "aby"], [0, 1, 0, 1], "abcabxy"),
        (["ab", "abcd", "abce", "abx"], [0, 1, 1, 1], "abcdex"),
    ],
)
def test_what_two_begin_with_is_laid_once_and_nothing_else(texts: list[str], joined: list[int], expected: str) -> None:
    assert laid(*texts, joined=joined) == expected


@pytest.mark.parametrize(
    ("texts", "num_together", "budget", "expected"),
    [
        # Two answers to a prompt of four: what they share counts for a quarter in the second.
        (["askyes", "askyno", "else"], 1, 100, [(0, 2, 9), (2, 3, 4)]),
        (["askyes", "askyno", "askyx"], 1, 9, [(0, 2, 9), (2, 3, 5)]),
        (["a23456789", "ax3456789"], 1, 100, [(0, 1, 9), (1, 2, 9)]),
        (["abcdefgh", "abcdefgh"], 1, 100, [(0, 2, 10)]),
        # What a loss compares is together, however little it shares and however long it is.
        (["ab", "xy", "xyz", "xy"], 2, 3, [(0, 2, 4), (2, 4, 3)]),
        (["ab", "xy", "xyz", "xy"], 2, 100, [(0, 4, 6)]),
    ],
)
def test_neighbors_that_begin_alike_are_in_one_pass(
    texts: list[str], num_together: int, budget: int, expected: list[tuple[int, int, int]]
) -> None:
    groups = groups_of(datums(*texts), num_together, budget)
    assert groups == [DatumGroup(*each) for each in expected]
    for group in groups:
        joined = [index > group.start for index in range(group.start, group.stop)]
        assert place(datums(*texts[group.start : group.stop]), joined).size == group.size


@pytest.mark.parametrize("window", [None, 3])
def test_attention_over_shared_rows_is_that_of_whole_sequences(window: int | None) -> None:
    # Catches an answer that sees the other one, and a gradient of the prompt that lacks one of them.
    placed = place(datums("promptone", "promptanother", "else", "elsewhere"), [False, True, False, True])
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


@pytest.mark.parametrize("budget", [1, 7, 64, 1000])
def test_every_datum_is_in_exactly_one_pass_within_the_budget(budget: int) -> None:
    lengths = [int(n) for n in np.random.default_rng(0).integers(1, 40, 100)]
    passes = pack(lengths, budget)
    assert sorted(i for members in passes for i in members) == list(range(100))
    assert all(sum(lengths[i] for i in members) <= budget or len(members) == 1 for members in passes)


def test_packs_tightly() -> None:
    assert pack([3, 5, 2, 6], 8) == [[3, 2], [1, 0]]
