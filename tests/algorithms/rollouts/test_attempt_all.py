"""Held-out groups, attempted all at once: what is left of the others when one fails."""

import asyncio
from typing import Any

import pytest

from cookhouse.algorithms.rollouts.evaluation import attempt_all
from cookhouse.errors import InputError

pytestmark = pytest.mark.anyio


async def test_what_is_no_failed_group_stops_the_others_first() -> None:
    # Catches rollouts that go on, and sample, after the run has ended.
    stopped: list[int] = []

    async def rollout(builder: Any, sampler: Any, seed: int) -> Any:
        del builder, sampler
        if seed == 1:
            raise InputError("no teacher")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(seed)

    builders: Any = [None] * 4
    sampler_of: Any = lambda _: None  # noqa: E731
    with pytest.raises(InputError, match="no teacher"):
        await attempt_all(builders, rollout, sampler_of, max_concurrent=4)
    assert sorted(stopped) == [0, 2, 3]
