"""The weights that rollouts sample from: which are the newest, and how they are asked."""

import asyncio
from typing import Any

import pytest
import tinker

from cookhouse.algorithms.rollouts.policy import Policy, PolicySampler
from cookhouse.settings import SamplingSettings
from cookhouse.training import FakeSamplingClient, FakeService

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("left", "expected"), [(None, 8), (5, 5), (99, 8)])
async def test_an_action_has_the_tokens_that_are_left_and_no_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, left: int | None, expected: int
) -> None:
    # Catches a prompt and an answer that together are longer than the model takes.
    asked: list[tinker.SamplingParams] = []
    sample = FakeSamplingClient.sample

    def spy(client: FakeSamplingClient, prompt: tinker.ModelInput, num: int, params: tinker.SamplingParams) -> Any:
        asked.append(params)
        return sample(client, prompt, num, params)

    monkeypatch.setattr(FakeSamplingClient, "sample", spy)
    client: Any = await FakeService().create_sampling_client()
    sampler = PolicySampler(client, 3, max_tokens=8, temperature=0.5)
    prompt = tinker.ModelInput.from_ints([1])
    actions = await sampler.sample(prompt, [2], num_samples=2, max_tokens=left, seed=11)
    assert (len(actions), sampler.version) == (2, 3)
    [params] = asked
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (expected, 0.5, 1, -1)
    assert (params.stop, params.seed) == ([2], 11)


@pytest.mark.parametrize(("max_tokens", "expected"), [(3, True), (4, False), (8, False)])
async def test_an_answer_that_was_cut_is_told_from_one_that_just_fits(max_tokens: int, expected: bool) -> None:
    # Catches lengths compared with the limit: an answer whose stop token is the last that was allowed is whole.
    client: Any = await FakeService(answer=lambda *_: [5, 6, 7, 2]).create_sampling_client()
    sampler = PolicySampler(client, 0, max_tokens=8, temperature=1.0)
    prompt = tinker.ModelInput.from_ints([1])
    [action] = await sampler.sample(prompt, [2], num_samples=1, max_tokens=max_tokens, seed=0)
    assert action.is_truncated is expected


async def test_weights_that_arrive_late_do_not_replace_newer_ones() -> None:
    # Catches rollouts that go back to older weights because the service answered out of order.
    released = asyncio.Event()

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("snapshot", 0):
            await released.wait()

    changes: asyncio.Queue[int] = asyncio.Queue()
    policy = Policy(SamplingSettings(max_tokens=8))
    policy.on_change(lambda: changes.put_nowait(-1 if policy.current is None else policy.current.version))
    trainer: Any = await FakeService(gate=gate).create_lora_training_client("fake", seed=0)
    policy.publish(trainer, 1)
    policy.publish(trainer, 2)
    assert await changes.get() == 2
    released.set()
    assert await changes.get() == 2
    await policy.aclose()


async def test_the_newest_weights_are_waited_for() -> None:
    """Catches answers by the weights of the step before while new ones are being published."""
    released = asyncio.Event()

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("snapshot", 1):
            await released.wait()

    policy = Policy(SamplingSettings(max_tokens=8))
    trainer: Any = await FakeService(gate=gate).create_lora_training_client("fake", seed=0)
    policy.publish(trainer, 0)
    assert (await policy.newest()).version == 0
    policy.publish(trainer, 1)
    asked = asyncio.create_task(policy.newest())
    await asyncio.sleep(0)
    released.set()
    assert (await asked).version == 1
    await policy.aclose()
