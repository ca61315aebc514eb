"""Several data sets in one."""

from itertools import chain

import numpy as np
import pytest

from cookhouse.data import Example, MixedDataset, SupervisedDataset, parse_weights, shares
from cookhouse.errors import InputError


def dataset(first: int, count: int, batch_size: int) -> SupervisedDataset:
    examples = [
        Example(
            tokens_T=np.array([number, 1], dtype=np.int32),
            weights_T=np.ones(2, dtype=np.float32),
            source=f"f:{number}",
            num_cut_tokens=0,
        )
        for number in range(first, first + count)
    ]
    return SupervisedDataset(examples, batch_size=batch_size, seed=3)


def batch(mixed: MixedDataset[list[object]], index: int) -> list[list[int]]:
    return [[datum.model_input.to_ints()[0] for datum in part] for part in mixed.get_batch(index)]  # type: ignore[attr-defined]


def mixed() -> MixedDataset[list[object]]:
    return MixedDataset([dataset(0, 3, 1), dataset(100, 14, 2)])  # type: ignore[list-item]


def test_a_smaller_set_begins_again_in_another_order() -> None:
    whole = mixed()
    whole.set_epoch(0)
    assert len(whole) == 7
    found = [batch(whole, index) for index in range(7)]
    laps = [[found[index][0][0] for index in lap] for lap in ([0, 1, 2], [3, 4, 5])]
    assert sorted(laps[0]) == sorted(laps[1]) == [0, 1, 2]
    assert laps[0] != laps[1]
    assert sorted(number for _, large in found for number in large) == list(range(100, 114))


def test_each_epoch_has_an_order_of_its_own() -> None:
    # Catches parts that stay in the order of the first epoch, whose batches then come again and again.
    whole = mixed()
    orders = []
    for epoch in (0, 1, 0):
        whole.set_epoch(epoch)
        found = [batch(whole, index) for index in range(7)]
        orders.append(([small for small, _ in found], [large for _, large in found]))
    assert orders[0] == orders[2]
    for before, after in zip(orders[0], orders[1], strict=True):
        assert before != after
        assert sorted(chain.from_iterable(before)) == sorted(chain.from_iterable(after))


def test_a_batch_is_the_same_without_those_before_it() -> None:
    # Catches a resume that begins a smaller set at its first lap.
    whole, resumed = mixed(), mixed()
    for index in range(7):
        whole.set_epoch(1)
        if index == 5:
            resumed.set_epoch(1)
            assert batch(resumed, 5) == batch(whole, 5)
        batch(whole, index)
    for index in (-1, 7):
        with pytest.raises(IndexError):
            whole.get_batch(index)


def test_shares_fill_the_batch() -> None:
    names = ["a", "b", "c"]
    assert shares(10, [1, 1, 1], names) == [3, 4, 3]
    assert shares(8, [0.5, 0.25, 0.25], names) == [4, 2, 2]
    assert parse_weights(" 2, 1,0.5", names, "weights") == [2.0, 1.0, 0.5]
    assert parse_weights("", names, "weights") is None
    for text in ("1,2", "1,2,0", "1,2,-1", "1,2,inf", "1,2,nan"):
        with pytest.raises(InputError, match=f"weights is '{text}'; there must be one above 0 for each of a, b, c"):
            parse_weights(text, names, "weights")
