"""Catches datums lost, doubled or over budget when passes are formed."""

import numpy as np
import pytest

from cookhouse.engine.train.packing import pack


@pytest.mark.parametrize("budget", [1, 7, 64, 1000])
def test_every_datum_is_in_exactly_one_pass_within_the_budget(budget: int) -> None:
    lengths = [int(n) for n in np.random.default_rng(0).integers(1, 40, 100)]
    passes = pack(lengths, budget)
    assert sorted(i for p in passes for i in p.indices) == list(range(100))
    assert all(p.num_tokens <= budget or len(p.indices) == 1 for p in passes)
    assert all(p.lengths == tuple(lengths[i] for i in p.indices) for p in passes)


def test_packs_tightly() -> None:
    assert [p.indices for p in pack([3, 5, 2, 6], 8)] == [(3, 2), (1, 0)]
