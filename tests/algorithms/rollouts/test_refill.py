"""Batches without groups that have one reward for all: full, bounded, and the same again after a stop."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.algorithms.rollouts.rl_kit import GuessDataset, RLKit, guess, jitter, rows
from tests.algorithms.rollouts.test_ends import stop_after

from cookhouse.algorithms.rollouts.refill import Refill
from cookhouse.rl.learning.advantages import rewards_differ
from cookhouse.settings import UpdateSettings
from cookhouse.telemetry import cut_metrics, read_metrics
from cookhouse.training import FakeService, Interrupt

pytestmark = pytest.mark.anyio

REFILL = Refill(teaches=rewards_differ, max_batches=4)


def every_third(number: int) -> bool:
    return number % 3 == 0


@pytest.mark.parametrize(
    ("lag", "update"),
    [
        (0, UpdateSettings()),
        (0, UpdateSettings(num_minibatches=2)),
        (0, UpdateSettings(num_substeps=2, ppo_epochs=2)),
        (2, UpdateSettings()),
    ],
    ids=str,
)
async def test_every_batch_is_full(rl_kit: RLKit, lag: int, update: UpdateSettings) -> None:
    # Catches a step that goes on with fewer groups, one that trains a group twice, and pieces cut by the old numbers.
    dataset = GuessDataset(num_batches=8, is_dull=every_third, delay=jitter(1))
    loop = await rl_kit.loop(
        FakeService(answer=guess), dataset=dataset, refill=REFILL, update=update, max_steps_off_policy=lag
    )
    await loop.run()
    rl_kit.telemetry.close()
    assert [len(trained.taught) for trained in rl_kit.trained] == [4] * 5
    sampled = [group_id for trained in rl_kit.trained for group_id in trained.ids]
    assert len(sampled) == len(set(sampled)) > 5 * 4
    assert all(0 <= trained.step - version <= lag for trained in rl_kit.trained for version in trained.versions)
    found = read_metrics(rl_kit.folder / "metrics.jsonl")
    shares = [(len(trained.ids) - 4) / len(trained.ids) for trained in rl_kit.trained]
    assert [row["rollouts/frac_replaced"] for row in found] == pytest.approx(shares)
    # All that was sampled is in the reward, also what was not trained on.
    assert [row["env/all/total_groups"] for row in found] == [len(trained.ids) for trained in rl_kit.trained]
    assert [row["train/num_trained_tokens"] for row in found] == [4 * 4 * 3 * update.ppo_epochs] * 5


async def test_further_problems_are_those_that_no_step_has(rl_kit: RLKit) -> None:
    # Catches problems that a later step trains on as well, and a stream that differs by what was drawn before.
    seen: list[int] = []

    async def note(number: int) -> None:
        seen.append(number)

    dataset = GuessDataset(is_dull=lambda number: number in (1, 5, 12, 16), delay=note)
    await (await rl_kit.loop(FakeService(answer=guess), dataset=dataset, refill=REFILL, total_steps=3)).run()
    # Steps have the batches 0, 1, 2 of four numbers; step 0 then goes on with batch 3 (from 12), step 1 with 4.
    assert sorted(set(seen)) == [*range(12), 12, 13, 16, 17]


async def test_problems_that_teach_nothing_are_given_up_with_a_warning(
    rl_kit: RLKit, caplog: pytest.LogCaptureFixture
) -> None:
    # Catches a run that samples for ever.
    dataset = GuessDataset(is_dull=lambda number: number != 0)
    await (await rl_kit.loop(FakeService(answer=guess), dataset=dataset, refill=REFILL, total_steps=1)).run()
    assert rl_kit.num_rollouts == 4 * 4, "four batches"
    [trained] = rl_kit.trained
    assert (len(trained.ids), trained.taught) == (16, [(0, 0)])
    assert "step 0: 3 of 4 groups have one reward for all, after 16 were sampled" in caplog.text


async def test_data_that_gives_no_more_is_not_asked_for_ever(rl_kit: RLKit) -> None:
    class Short(GuessDataset):
        def get_batch(self, index: int) -> Any:
            assert index < 9, "asked again and again"
            return super().get_batch(index) if index < 2 else []

    dataset = Short(num_batches=1, is_dull=lambda number: number in (0, 4, 5, 6, 7))
    await (await rl_kit.loop(FakeService(answer=guess), dataset=dataset, refill=REFILL, total_steps=1)).run()
    [trained] = rl_kit.trained
    assert (len(trained.ids), trained.taught) == (8, [(0, 1), (0, 2), (0, 3)])


async def test_groups_that_failed_are_not_replaced(rl_kit: RLKit) -> None:
    async def delay(number: int) -> None:
        if number == 2:
            raise RuntimeError("no such table")

    dataset = GuessDataset(delay=delay, is_dull=lambda number: number == 1)
    settings: dict[str, Any] = {"on_failed_group": "skip", "total_steps": 1}
    await (await rl_kit.loop(FakeService(answer=guess), dataset=dataset, refill=REFILL, **settings)).run()
    [trained] = rl_kit.trained
    assert trained.taught == [(0, 0), (0, 3), (0, 4)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lag", [0, 2])
async def test_a_run_may_stop_anywhere_and_goes_on_with_the_same_batches(
    new_rl_kit: Callable[[str], RLKit], seed: int, lag: int
) -> None:
    # Catches groups that were drawn again and, after a kill, are sampled as others or trained on twice.
    settings: dict[str, Any] = {"refill": REFILL, "save_every": 2, "max_steps_off_policy": lag}
    whole, parts = new_rl_kit("whole"), new_rl_kit("parts")
    data: dict[str, Any] = {"num_batches": 5, "is_dull": every_third}
    await (await whole.loop(FakeService(answer=guess), dataset=GuessDataset(**data), **settings)).run()
    chance = np.random.default_rng(seed)
    states: dict[str, Any] = {}
    step_by_group: dict[tuple[int, int], int] = {}
    before = asyncio.all_tasks()
    for turns in [*chance.integers(20, 160, size=5).tolist(), None]:
        parts.interrupt = Interrupt()
        parts.telemetry.close()
        last = parts.checkpoints.last_state()
        cut_metrics(parts.folder / "metrics.jsonl", 0 if last is None else last.step)
        dataset = GuessDataset(**data, delay=jitter(int(chance.integers(1000))))
        loop = await parts.loop(FakeService(states=states, answer=guess), dataset=dataset, **settings)
        running = asyncio.create_task(loop.run())
        await stop_after(running, turns, parts.interrupt.request if chance.random() < 0.5 else running.cancel)
        assert asyncio.all_tasks() == before
        for trained in parts.trained:
            assert len(trained.taught) == 4
            step_by_group = {group: step for group, step in step_by_group.items() if step < trained.step}
            assert not step_by_group.keys() & set(trained.ids), "a group is trained on twice"
            step_by_group |= dict.fromkeys(trained.ids, trained.step)
        parts.trained.clear()
    assert [row[0] for row in rows(parts)] == [0, 1, 2, 3, 4]
    if lag == 0:
        assert rows(parts) == rows(whole)
        assert step_by_group == {group: trained.step for trained in whole.trained for group in trained.ids}
