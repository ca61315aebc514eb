"""How runs over rollouts end, by Ctrl-C, a kill or a failure, and how they go on from there."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tinker
from tests.algorithms.rollouts.rl_kit import GuessDataset, GuessGroup, RLKit, guess, jitter, rows, settle

from cookhouse.algorithms.rollouts.assembler import RolloutAssembler
from cookhouse.algorithms.rollouts.policy import PolicySampler
from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.rl import RolloutStrategy, do_group_rollout
from cookhouse.settings import AdvantageSettings, TrainingSettings, UpdateSettings
from cookhouse.telemetry import Telemetry, cut_metrics, read_metrics
from cookhouse.training import FakeService, Interrupt, SessionSpec, open_session

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stop_at", [1, 3])
async def test_a_synchronous_run_resumes_to_the_bit(new_rl_kit: Callable[[str], RLKit], stop_at: int) -> None:
    whole = new_rl_kit("whole")
    await (await whole.loop(FakeService(answer=guess))).run()

    states: dict[str, Any] = {}
    parts = new_rl_kit("parts")

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", stop_at):
            parts.interrupt.request()

    outcome = await (await parts.loop(FakeService(states=states, gate=gate, answer=guess))).run()
    assert outcome.is_interrupted
    assert outcome.cursor.step == stop_at + 1
    parts.interrupt = Interrupt()
    await (await parts.loop(FakeService(states=states, answer=guess))).run()
    assert rows(parts) == rows(whole)


async def test_a_lagging_run_that_stops_loses_no_finished_rollout(rl_kit: RLKit) -> None:
    # Catches groups that were sampled ahead, and are sampled again after a resume.
    states: dict[str, Any] = {}
    dataset = GuessDataset(num_batches=8)

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 2):
            await settle()
            rl_kit.interrupt.request()

    await (
        await rl_kit.loop(
            FakeService(states=states, gate=gate, answer=guess), total_steps=8, max_steps_off_policy=2, dataset=dataset
        )
    ).run()
    before = rl_kit.num_rollouts
    assert before > 3 * 4
    rl_kit.interrupt = Interrupt()
    await (
        await rl_kit.loop(
            FakeService(states=states, answer=guess), total_steps=8, max_steps_off_policy=2, dataset=dataset
        )
    ).run()
    assert rl_kit.num_rollouts == 8 * 4
    used = [id_ for trained in rl_kit.trained for id_ in trained.ids]
    assert sorted(used) == [(step, number) for step in range(8) for number in range(4)]
    assert all(0 <= trained.step - version <= 2 for trained in rl_kit.trained for version in trained.versions)


async def test_a_killed_run_forgets_what_weights_that_are_lost_sampled(rl_kit: RLKit) -> None:
    # Catches rollouts of weights after the checkpoint, which the resumed run never has, being taken for its own.
    states: dict[str, Any] = {}

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 3):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    loop = await rl_kit.loop(FakeService(states=states, gate=gate, answer=guess), save_every=2, max_steps_off_policy=1)
    with pytest.raises(ServiceError, match="killed"):
        await loop.run()
    rl_kit.trained.clear()
    await (await rl_kit.loop(FakeService(states=states, answer=guess), max_steps_off_policy=1)).run()
    assert [trained.step for trained in rl_kit.trained] == [2, 3, 4]
    assert all(0 <= trained.step - version <= 1 for trained in rl_kit.trained for version in trained.versions)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("lag", "update"),
    [
        (0, UpdateSettings()),
        (0, UpdateSettings(num_substeps=2, ppo_epochs=2)),
        (0, UpdateSettings(num_minibatches=2)),
        (2, UpdateSettings()),
    ],
)
async def test_a_run_may_stop_anywhere_and_often(
    new_rl_kit: Callable[[str], RLKit], seed: int, lag: int, update: UpdateSettings
) -> None:
    # Catches a moment at which Ctrl-C or a kill loses a step, a group or the order, or leaves a task behind.
    settings: dict[str, Any] = {"max_steps_off_policy": lag, "update": update, "save_every": 2}
    whole, parts = new_rl_kit("whole"), new_rl_kit("parts")
    await (await whole.loop(FakeService(answer=guess), dataset=GuessDataset(num_batches=5), **settings)).run()
    chance = np.random.default_rng(seed)
    states: dict[str, Any] = {}
    step_by_group: dict[tuple[int, int], int] = {}
    before = asyncio.all_tasks()
    for turns in [*chance.integers(1, 60, size=5).tolist(), None]:
        parts.interrupt = Interrupt()
        parts.telemetry.close()
        last = parts.checkpoints.last_state()
        cut_metrics(parts.folder / "metrics.jsonl", 0 if last is None else last.step)
        service = FakeService(states=states, answer=guess)
        dataset = GuessDataset(num_batches=5, delay=jitter(int(chance.integers(1000))))
        running = asyncio.create_task((await parts.loop(service, dataset=dataset, **settings)).run())
        await stop_after(running, turns, parts.interrupt.request if chance.random() < 0.5 else running.cancel)
        assert asyncio.all_tasks() == before
        for trained in parts.trained:
            assert all(0 <= trained.step - version <= lag for version in trained.versions)
            # Steps after the checkpoint are done again, with groups of their own choice.
            step_by_group = {group: step for group, step in step_by_group.items() if step < trained.step}
            assert not step_by_group.keys() & set(trained.ids), "a group is trained on twice"
            step_by_group |= dict.fromkeys(trained.ids, trained.step)
        parts.trained.clear()
    assert [row[0] for row in rows(parts)] == [0, 1, 2, 3, 4]
    assert sorted(step_by_group) == [(step, number) for step in range(5) for number in range(4)]
    if lag == 0 and update.num_minibatches == 1:
        assert rows(parts) == rows(whole)


async def stop_after(running: asyncio.Task[Any], turns: int | None, stop: Callable[[], Any]) -> None:
    """Let a run have some turns of the event loop, then stop it; None: let it come to its end."""
    for _ in range(turns or 0):
        await asyncio.sleep(0)
    if turns is not None and not running.done():
        stop()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("kind", ["sample", "forward_backward", "snapshot"])
async def test_a_failing_service_ends_the_run_with_its_cause_and_no_task(rl_kit: RLKit, kind: str, lag: int) -> None:
    async def gate(asked: str, number: int) -> None:
        if asked == kind and number == 1:
            raise tinker.RequestFailedError("out of memory", "r", tinker.types.RequestErrorCategory.Server)

    before = asyncio.all_tasks()
    loop = await rl_kit.loop(FakeService(gate=gate, answer=guess), max_steps_off_policy=lag)
    with pytest.raises(CookhouseError, match="out of memory"):
        await loop.run()
    assert asyncio.all_tasks() == before


async def test_a_failing_environment_ends_the_run_with_its_cause_and_no_task(rl_kit: RLKit) -> None:
    async def delay(number: int) -> None:
        if number == 2:
            raise RuntimeError("no such table")

    before = asyncio.all_tasks()
    loop = await rl_kit.loop(FakeService(answer=guess), dataset=GuessDataset(delay=delay))
    with pytest.raises(CookhouseError, match="no such table"):
        await loop.run()
    assert asyncio.all_tasks() == before


async def test_a_step_goes_without_a_group_that_failed_if_told_to(rl_kit: RLKit) -> None:
    async def delay(number: int) -> None:
        if number == 2:
            raise RuntimeError("no such table")

    loop = await rl_kit.loop(
        FakeService(answer=guess),
        dataset=GuessDataset(delay=delay),
        on_failed_group="skip",
        strategy=RolloutStrategy(rollout_attempts=2),
        total_steps=1,
    )
    await loop.run()
    rl_kit.telemetry.close()
    [row] = read_metrics(rl_kit.folder / "metrics.jsonl")
    assert row["rollouts/groups_failed"] == 1
    assert row["env/all/total_episodes"] == 3 * 4


async def test_a_step_of_failed_groups_alone_says_why(rl_kit: RLKit) -> None:
    async def delay(number: int) -> None:
        raise RuntimeError(f"no table {number}")

    loop = await rl_kit.loop(FakeService(answer=guess), dataset=GuessDataset(delay=delay), on_failed_group="skip")
    with pytest.raises(InputError, match=r"all 4 groups.*no table 0"):
        await loop.run()


@pytest.mark.parametrize("lag", [0, 2])
async def test_an_interrupt_does_not_wait_for_rollouts(rl_kit: RLKit, lag: int) -> None:
    # Catches a Ctrl-C that acts only when the slowest environment has answered.
    async def delay(number: int) -> None:
        if number >= 4:
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    loop = await rl_kit.loop(FakeService(answer=guess), max_steps_off_policy=lag, dataset=GuessDataset(delay=delay))
    running = asyncio.create_task(loop.run())
    await settle()
    rl_kit.interrupt.request()
    outcome = await asyncio.wait_for(running, timeout=5)
    assert outcome.is_interrupted
    assert asyncio.all_tasks() == before


async def test_an_interrupt_within_a_step_of_several_updates_brings_it_to_its_end(rl_kit: RLKit) -> None:
    # Catches a checkpoint of weights between two updates, from which nothing could be repeated.
    states: dict[str, Any] = {}

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 0):
            rl_kit.interrupt.request()

    loop = await rl_kit.loop(
        FakeService(states=states, gate=gate, answer=guess), update=UpdateSettings(num_substeps=4), total_steps=3
    )
    outcome = await loop.run()
    assert outcome.cursor.step == 1
    assert outcome.checkpoint is not None
    assert len(rows(rl_kit)) == 1


@pytest.mark.parametrize(
    "update", [UpdateSettings(num_substeps=4), UpdateSettings(num_minibatches=4), UpdateSettings(num_minibatches=2)]
)
@pytest.mark.parametrize("failing", [(0,), (3,), (0, 1), (2, 3), (0, 1, 2), (1, 2, 3)])
async def test_a_step_goes_without_a_piece_whose_groups_all_failed(
    rl_kit: RLKit, update: UpdateSettings, failing: Sequence[int]
) -> None:
    # Catches an empty request, an optimizer step on no gradient, and the end of a run that was told to go on.
    async def delay(number: int) -> None:
        for _ in range(3 * number):  # pieces of a stream then come in the order of the data
            await asyncio.sleep(0)
        if number in failing:
            raise RuntimeError("no such table")

    service = FakeService(answer=guess)
    dataset = GuessDataset(delay=delay)
    await (await rl_kit.loop(service, dataset=dataset, update=update, on_failed_group="skip", total_steps=2)).run()
    rl_kit.telemetry.close()
    found = read_metrics(rl_kit.folder / "metrics.jsonl")
    assert [row["rollouts/groups_failed"] for row in found] == [len(failing), 0]
    assert [row["env/all/total_episodes"] for row in found] == [4.0 * (4 - len(failing)), 16.0]
    assert all(row["optim/grad_norm"] > 0 for row in found)
    updates = [call.kind for call in service.calls if call.phase == "submit"].count("optim_step")
    assert updates == (4 - len(failing) + 4 if update.num_substeps == 4 else 2)


@pytest.mark.parametrize("kind", ["reference", "observations"])
async def test_a_failing_reference_ends_with_its_cause_and_no_task(kind: str) -> None:
    # Catches requests that go on after the first of them has failed.
    async def compute(sequence: tinker.ModelInput) -> Sequence[float | None]:
        if sequence.to_ints()[0] == 2:
            raise tinker.RequestFailedError("out of memory", "r", tinker.types.RequestErrorCategory.Server)
        await asyncio.Event().wait()
        raise AssertionError

    session = await open_session(FakeService(answer=guess).connect, SessionSpec(settings=TrainingSettings()))
    client = await session.client.save_weights_and_get_sampling_client()
    sampler = PolicySampler(client, 0, max_tokens=8, temperature=1.0)
    builders = [GuessGroup(number=number, delay=jitter(0)) for number in range(4)]
    groups = [await do_group_rollout(builder, sampler, seed=0) for builder in builders]
    asked: dict[str, Any] = {"reference": compute} if kind == "reference" else {"observation_logprobs": compute}
    assemble = RolloutAssembler(AdvantageSettings(kl_coef=0.1), Telemetry(), **asked)
    before = asyncio.all_tasks()
    with pytest.raises(ServiceError, match="out of memory"):
        await asyncio.wait_for(assemble(groups), timeout=5)
    assert asyncio.all_tasks() == before
