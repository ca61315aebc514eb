"""What overlap is worth: the same work on a service of seeded, heavy-tailed latency, timed on a clock of its own."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from bench.overlap import VirtualLoop
from tests.algorithms.rollouts.rl_kit import GuessDataset, RLKit, guess

from cookhouse.settings import UpdateSettings
from cookhouse.training import FakeService

TRAIN_SECONDS = 6.0
NUM_STEPS = 24


async def _seconds(folder: Path, max_steps_off_policy: int, update: UpdateSettings) -> float:
    """Duration of a run whose rollouts take 1 to 30 seconds each, mostly few, and whose steps take six."""
    chance = np.random.default_rng(0)
    seconds_by_group = np.minimum(1.0 + chance.pareto(1.2, size=NUM_STEPS * 8), 30.0)

    async def delay(number: int) -> None:
        await asyncio.sleep(float(seconds_by_group[number]))

    trained = [asyncio.Event() for _ in range(NUM_STEPS * update.num_minibatches)]

    async def gate(kind: str, number: int) -> None:
        if kind == "forward_backward":
            await asyncio.sleep(TRAIN_SECONDS / update.num_minibatches)
            trained[number].set()
        if kind == "snapshot" and number > 0:  # of the weights after so many steps: not there before them
            await trained[number * update.num_minibatches - 1].wait()

    kit = RLKit(folder)
    dataset = GuessDataset(num_batches=NUM_STEPS, batch_size=8, delay=delay)
    service = FakeService(gate=gate, answer=guess)
    loop = await kit.loop(
        service, total_steps=NUM_STEPS, max_steps_off_policy=max_steps_off_policy, update=update, dataset=dataset
    )
    await loop.run()
    kit.telemetry.close()
    return asyncio.get_running_loop().time()


def seconds(folder: Path, *, max_steps_off_policy: int = 0, num_minibatches: int = 1) -> float:
    update = UpdateSettings(num_minibatches=num_minibatches)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_seconds(folder, max_steps_off_policy, update))


@pytest.fixture(scope="module")
def synchronous(tmp_path_factory: pytest.TempPathFactory) -> float:
    return seconds(tmp_path_factory.mktemp("sync"))


def test_two_steps_of_lag_nearly_double_the_throughput(synchronous: float, tmp_path: Path) -> None:
    # Catches slots that are released too late, and stragglers that everything waits for.
    assert synchronous / seconds(tmp_path, max_steps_off_policy=2) >= 1.8


def test_streaming_trains_while_the_last_groups_are_sampled(synchronous: float, tmp_path: Path) -> None:
    # Catches a stream that waits for its batch: its training would then come after the sampling, as without it.
    assert synchronous / seconds(tmp_path, num_minibatches=8) >= 1.05
