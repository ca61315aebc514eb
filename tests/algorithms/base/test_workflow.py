"""What every run that trains has from its builder."""

import pytest

from cookhouse.recipes import find_recipe
from cookhouse.registry import Descent


@pytest.mark.parametrize(
    ("recipe", "descent"),
    [
        ("supervised", Descent.FINE_TUNED_FROM),
        ("preference_model", Descent.FINE_TUNED_FROM),
        ("dpo", Descent.DPO_TRAINED_FROM),
        ("rl_basic", Descent.RL_TRAINED_FROM),
        ("on_policy_distillation", Descent.DISTILLED_FROM),
        ("off_policy_distillation", Descent.DISTILLED_FROM),
        ("rl_loop", Descent.RL_TRAINED_FROM),
    ],
)
def test_a_workflow_says_how_its_weights_descend(recipe: str, descent: Descent) -> None:
    """Catches a workflow that registers one descent and tells a sweep another."""
    found = find_recipe(recipe)
    assert found.workflow(found.default_config).descent == descent
