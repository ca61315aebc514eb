"""The line on adapters that others serve."""

import pytest

from cookhouse.models.serving import serving_note


@pytest.mark.parametrize(("rank", "train_unembed", "is_said"), [(8, True, True), (8, False, False), (0, True, False)])
def test_it_is_said_of_an_adapter_on_the_output_alone(rank: int, train_unembed: bool, is_said: bool) -> None:
    """Catches a warning of an adapter that every server takes, and of all weights, which are none."""
    note = serving_note(rank=rank, train_unembed=train_unembed)
    assert (note is not None) is is_said
    assert note is None or ("train_unembed=false" in note and "\n" not in note)
