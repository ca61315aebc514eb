from typing import Any

import pytest

from cookhouse.training import CheckpointKind, FakeService, submit_checkpoint
from cookhouse.weights.checkpoints import Cursor

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("kind", "has_state", "has_sampler"),
    [(CheckpointKind.STATE, True, False), (CheckpointKind.SAMPLER, False, True), (CheckpointKind.BOTH, True, True)],
)
async def test_kind_decides_what_is_saved(kind: CheckpointKind, has_state: bool, has_sampler: bool) -> None:
    client: Any = await FakeService().create_lora_training_client("fake", seed=0)
    cursor = Cursor(epoch=1, batch=2, step=7)
    saved = await submit_checkpoint(client, cursor, kind=kind).finish()
    assert (saved.name, saved.cursor, saved.final) == ("000007", cursor, False)
    assert (saved.state_path is not None, saved.sampler_path is not None) == (has_state, has_sampler)
