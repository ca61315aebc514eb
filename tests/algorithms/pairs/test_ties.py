"""A pair whose answers are equally good, within rounding, is half a pair that is won."""

import numpy as np
import pytest

from cookhouse.algorithms.pairs.objective import pair_metrics, pairs_of_sums
from cookhouse.losses.pair_losses import PAIR_LOSSES
from cookhouse.recipes.dpo import Config


@pytest.mark.parametrize("name", ["dpo", "dpo_norm", "simpo"])
@pytest.mark.parametrize(("gap", "accuracy"), [(0.0, 0.5), (7e-14, 0.5), (-7e-14, 0.5), (1e-2, 1.0), (-1e-2, 0.0)])
def test_a_difference_within_rounding_is_no_win(name: str, gap: float, accuracy: float) -> None:
    """Catches 51.2 % before training, where the reference is what is trained: a difference of 7e-17 counted as won."""
    settings, loss = Config(pair_loss=name), PAIR_LOSSES.find(name)
    sums_D, tokens_D = np.array([-31.25 + gap, -31.25]), np.array([7.0, 7.0])
    pairs = pairs_of_sums(sums_D, tokens_D, np.array([[-31.25, -31.25]]))
    assert pair_metrics(loss, settings, pairs, 0.0)["accuracy"] == accuracy
