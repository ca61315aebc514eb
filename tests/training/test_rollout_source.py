"""Synchronous, streamed and lagging rollouts: which weights each step is trained on, and what is left when it ends."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
from tests.training.rl_kit import GuessDataset, GuessGroup, RLKit, guess, settle

from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.rl import RolloutStrategy, do_group_rollout
from cookhouse.telemetry import Telemetry, read_metrics
from cookhouse.training import (
    AdvantageSpec,
    FakeService,
    Interrupt,
    PolicySampler,
    RolloutBatcher,
    Sampling,
    SessionSpec,
    StepPlan,
    open_session,
)

pytestmark = pytest.mark.anyio

COLUMNS = ("step", "optim/loss", "optim/grad_norm", "env/all/reward/total", "optim/lr", "progress/batch")


@pytest.fixture
def new_kit(tmp_path: Path) -> Iterator[Callable[[str], RLKit]]:
    kits: list[RLKit] = []

    def make(name: str) -> RLKit:
        kits.append(RLKit(tmp_path / name))
        return kits[-1]

    yield make
    for kit in kits:
        kit.telemetry.close()


@pytest.fixture
def kit(new_kit: Callable[[str], RLKit]) -> RLKit:
    return new_kit("run")


def rows(kit: RLKit) -> list[list[float]]:
    kit.telemetry.close()
    return [[row[column] for column in COLUMNS] for row in read_metrics(kit.folder / "metrics.jsonl")]


def jitter(seed: int, *, slow: Sequence[int] = ()) -> Any:
    """Groups begin after a few turns of the event loop, drawn by seed; some of them much later."""
    chance = np.random.default_rng(seed)

    async def delay(number: int) -> None:
        turns = 400 if number in slow else int(chance.integers(0, 8))
        for _ in range(turns):
            await asyncio.sleep(0)

    return delay


@pytest.mark.parametrize("plan", [StepPlan(), StepPlan(num_minibatches=2), StepPlan(num_substeps=2, num_epochs=2)])
async def test_without_lag_no_token_is_older_than_the_weights(kit: RLKit, plan: StepPlan) -> None:
    # Catches a sampler swapped too late, or groups of the next step begun before the weights were published.
    dataset = GuessDataset(delay=jitter(1))
    await (await kit.loop(FakeService(answer=guess), plan=plan, dataset=dataset)).run()
    assert [trained.versions for trained in kit.trained] == [[step] * 4 for step in range(5)]
    expected = [[(step, number) for number in range(4)] for step in range(5)]
    assert [sorted(trained.ids) for trained in kit.trained] == expected
    for row in read_metrics(kit.folder / "metrics.jsonl"):
        if plan.num_substeps == 1:
            assert abs(row["optim/kl_sample_train_v1"]) < 1e-8
            assert row["optim/kl_sample_train_v2"] < 1e-8


@pytest.mark.parametrize("lag", [1, 2, 3])
async def test_lag_never_exceeds_its_bound_stragglers_included(kit: RLKit, lag: int) -> None:
    # Catches slots released by the step rather than by the publication, and stragglers that are trained on late.
    dataset = GuessDataset(num_batches=12, delay=jitter(lag, slow=[1, 9]))
    await (await kit.loop(FakeService(answer=guess), total_steps=12, max_lag=lag, dataset=dataset)).run()
    lags = [trained.step - version for trained in kit.trained for version in trained.versions]
    assert max(lags) == lag
    assert min(lags) >= 0
    used = [id_ for trained in kit.trained for id_ in trained.ids]
    assert len(used) == len(set(used)) == 12 * 4, "no group is trained on twice"


async def test_a_group_that_became_too_old_is_sampled_again(kit: RLKit) -> None:
    async def delay(number: int) -> None:
        if number == 1 and kit.num_rollouts < 20:
            await asyncio.Event().wait()

    dataset = GuessDataset(num_batches=8, delay=delay)
    await (await kit.loop(FakeService(answer=guess), total_steps=8, max_lag=1, dataset=dataset)).run()
    assert kit.pool.num_resampled > 0
    assert (0, 1) in [id_ for trained in kit.trained for id_ in trained.ids]
    assert all(trained.step - version <= 1 for trained in kit.trained for version in trained.versions)


async def test_lag_makes_sampler_and_trainer_differ(kit: RLKit) -> None:
    dataset = GuessDataset(num_batches=8)
    await (await kit.loop(FakeService(answer=guess), total_steps=8, max_lag=2, dataset=dataset)).run()
    kit.telemetry.close()
    assert max(row["optim/kl_sample_train_v2"] for row in read_metrics(kit.folder / "metrics.jsonl")) > 1e-6


async def test_minibatches_train_on_what_is_ready(kit: RLKit) -> None:
    # Catches a stream that waits for the whole batch, or for its groups in order.
    release = asyncio.Event()

    async def delay(number: int) -> None:
        if number == 0:
            await release.wait()

    service = FakeService(answer=guess)
    loop = await kit.loop(service, total_steps=1, plan=StepPlan(num_minibatches=2), dataset=GuessDataset(delay=delay))
    running = asyncio.create_task(loop.run())
    await settle()
    assert [call.kind for call in service.calls].count("forward_backward") == 1
    assert "optim_step" not in [call.kind for call in service.calls], "the gradient of half a batch is no step"
    release.set()
    await running
    assert [call.kind for call in service.calls if call.phase == "submit"].count("optim_step") == 1


async def test_substeps_are_submitted_before_the_last_is_read(kit: RLKit) -> None:
    service = FakeService(answer=guess)
    await (await kit.loop(service, total_steps=1, plan=StepPlan(num_substeps=2, num_epochs=2))).run()
    calls = [f"{call.phase} {call.kind} {call.number}" for call in service.calls if call.kind == "optim_step"]
    assert calls[:3] == ["submit optim_step 0", "submit optim_step 1", "finish optim_step 0"]
    assert len(calls) == 2 * 4
    assert len(rows(kit)) == 1, "substeps and epochs are one step"


async def test_all_minibatches_together_equal_the_whole_batch(new_kit: Callable[[str], RLKit]) -> None:
    found = []
    for plan in (StepPlan(), StepPlan(num_minibatches=4)):
        kit = new_kit(str(plan.num_minibatches))
        await (await kit.loop(FakeService(answer=guess), plan=plan)).run()
        found.append(rows(kit))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


async def test_rollouts_do_not_depend_on_what_finishes_first(new_kit: Callable[[str], RLKit]) -> None:
    found = []
    for seed in range(3):
        kit = new_kit(str(seed))
        await (await kit.loop(FakeService(answer=guess), dataset=GuessDataset(delay=jitter(seed)))).run()
        found.append(rows(kit))
    assert found[0] == found[1] == found[2]
    assert len({row[1] for row in found[0]}) > 1


@pytest.mark.parametrize("stop_at", [1, 3])
async def test_a_synchronous_run_resumes_to_the_bit(new_kit: Callable[[str], RLKit], stop_at: int) -> None:
    whole = new_kit("whole")
    await (await whole.loop(FakeService(answer=guess))).run()

    states: dict[str, Any] = {}
    parts = new_kit("parts")

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", stop_at):
            parts.interrupt.request()

    outcome = await (await parts.loop(FakeService(states=states, gate=gate, answer=guess))).run()
    assert outcome.is_interrupted
    assert outcome.cursor.step == stop_at + 1
    parts.interrupt = Interrupt()
    await (await parts.loop(FakeService(states=states, answer=guess))).run()
    assert rows(parts) == rows(whole)


async def test_a_lagging_run_that_stops_loses_no_finished_rollout(kit: RLKit) -> None:
    # Catches groups that were sampled ahead, and are sampled again after a resume.
    states: dict[str, Any] = {}
    dataset = GuessDataset(num_batches=8)

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 2):
            await settle()
            kit.interrupt.request()

    await (
        await kit.loop(FakeService(states=states, gate=gate, answer=guess), total_steps=8, max_lag=2, dataset=dataset)
    ).run()
    before = kit.num_rollouts
    assert before > 3 * 4
    kit.interrupt = Interrupt()
    await (await kit.loop(FakeService(states=states, answer=guess), total_steps=8, max_lag=2, dataset=dataset)).run()
    assert kit.num_rollouts == 8 * 4
    used = [id_ for trained in kit.trained for id_ in trained.ids]
    assert sorted(used) == [(step, number) for step in range(8) for number in range(4)]
    assert all(0 <= trained.step - version <= 2 for trained in kit.trained for version in trained.versions)


async def test_a_killed_run_forgets_what_weights_that_are_lost_sampled(kit: RLKit) -> None:
    # Catches rollouts of weights after the checkpoint, which the resumed run never has, being taken for its own.
    states: dict[str, Any] = {}

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 3):
            raise tinker.RequestFailedError("killed", "r", tinker.types.RequestErrorCategory.Server)

    loop = await kit.loop(FakeService(states=states, gate=gate, answer=guess), save_every=2, max_lag=1)
    with pytest.raises(ServiceError, match="killed"):
        await loop.run()
    kit.trained.clear()
    await (await kit.loop(FakeService(states=states, answer=guess), max_lag=1)).run()
    assert [trained.step for trained in kit.trained] == [2, 3, 4]
    assert all(0 <= trained.step - version <= 1 for trained in kit.trained for version in trained.versions)


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("kind", ["sample", "forward_backward", "snapshot"])
async def test_a_failing_service_ends_the_run_with_its_cause_and_no_task(kit: RLKit, kind: str, lag: int) -> None:
    async def gate(asked: str, number: int) -> None:
        if asked == kind and number == 1:
            raise tinker.RequestFailedError("out of memory", "r", tinker.types.RequestErrorCategory.Server)

    before = asyncio.all_tasks()
    loop = await kit.loop(FakeService(gate=gate, answer=guess), max_lag=lag)
    with pytest.raises(CookhouseError, match="out of memory"):
        await loop.run()
    assert asyncio.all_tasks() == before


async def test_a_failing_environment_ends_the_run_with_its_cause_and_no_task(kit: RLKit) -> None:
    async def delay(number: int) -> None:
        if number == 2:
            raise RuntimeError("no such table")

    before = asyncio.all_tasks()
    loop = await kit.loop(FakeService(answer=guess), dataset=GuessDataset(delay=delay))
    with pytest.raises(CookhouseError, match="no such table"):
        await loop.run()
    assert asyncio.all_tasks() == before


async def test_a_step_goes_without_a_group_that_failed_if_told_to(kit: RLKit) -> None:
    async def delay(number: int) -> None:
        if number == 2:
            raise RuntimeError("no such table")

    loop = await kit.loop(
        FakeService(answer=guess),
        dataset=GuessDataset(delay=delay),
        fails_with_group=False,
        strategy=RolloutStrategy(attempts=2),
        total_steps=1,
    )
    await loop.run()
    kit.telemetry.close()
    [row] = read_metrics(kit.folder / "metrics.jsonl")
    assert row["rollouts/groups_failed"] == 1
    assert row["env/all/total_episodes"] == 3 * 4


async def test_a_step_of_failed_groups_alone_says_why(kit: RLKit) -> None:
    async def delay(number: int) -> None:
        raise RuntimeError(f"no table {number}")

    loop = await kit.loop(FakeService(answer=guess), dataset=GuessDataset(delay=delay), fails_with_group=False)
    with pytest.raises(InputError, match=r"all 4 groups.*no table 0"):
        await loop.run()


@pytest.mark.parametrize("lag", [0, 2])
async def test_an_interrupt_does_not_wait_for_rollouts(kit: RLKit, lag: int) -> None:
    # Catches a Ctrl-C that acts only when the slowest environment has answered.
    async def delay(number: int) -> None:
        if number >= 4:
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    loop = await kit.loop(FakeService(answer=guess), max_lag=lag, dataset=GuessDataset(delay=delay))
    running = asyncio.create_task(loop.run())
    await settle()
    kit.interrupt.request()
    outcome = await asyncio.wait_for(running, timeout=5)
    assert outcome.is_interrupted
    assert asyncio.all_tasks() == before


async def test_an_interrupt_within_a_step_of_several_updates_brings_it_to_its_end(kit: RLKit) -> None:
    # Catches a checkpoint of weights between two updates, from which nothing could be repeated.
    states: dict[str, Any] = {}

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 0):
            kit.interrupt.request()

    loop = await kit.loop(
        FakeService(states=states, gate=gate, answer=guess), plan=StepPlan(num_substeps=4), total_steps=3
    )
    outcome = await loop.run()
    assert outcome.cursor.step == 1
    assert outcome.checkpoint is not None
    assert len(rows(kit)) == 1


@pytest.mark.parametrize("plan", [StepPlan(num_substeps=4), StepPlan(num_minibatches=4), StepPlan(num_minibatches=2)])
@pytest.mark.parametrize("failing", [(0,), (3,), (0, 1), (2, 3), (0, 1, 2), (1, 2, 3)])
async def test_a_step_goes_without_a_piece_whose_groups_all_failed(
    kit: RLKit, plan: StepPlan, failing: Sequence[int]
) -> None:
    # Catches an empty request, an optimizer step on no gradient, and the end of a run that was told to go on.
    async def delay(number: int) -> None:
        for _ in range(3 * number):  # pieces of a stream then come in the order of the data
            await asyncio.sleep(0)
        if number in failing:
            raise RuntimeError("no such table")

    service = FakeService(answer=guess)
    dataset = GuessDataset(delay=delay)
    await (await kit.loop(service, dataset=dataset, plan=plan, fails_with_group=False, total_steps=2)).run()
    kit.telemetry.close()
    found = read_metrics(kit.folder / "metrics.jsonl")
    assert [row["rollouts/groups_failed"] for row in found] == [len(failing), 0]
    assert [row["env/all/total_episodes"] for row in found] == [4.0 * (4 - len(failing)), 16.0]
    assert all(row["optim/grad_norm"] > 0 for row in found)
    updates = [call.kind for call in service.calls if call.phase == "submit"].count("optim_step")
    assert updates == (4 - len(failing) + 4 if plan.num_substeps == 4 else 2)


async def test_rollouts_go_on_while_a_step_is_trained(kit: RLKit) -> None:
    # Catches places under `max_concurrent` that stay empty until the loop asks for the next step.
    has_come = asyncio.Event()

    async def delay(number: int) -> None:
        if number == 7:
            has_come.set()

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 0):
            await has_come.wait()

    service = FakeService(gate=gate, answer=guess)
    dataset = GuessDataset(delay=delay)
    loop = await kit.loop(service, total_steps=3, max_lag=1, max_concurrent=1, dataset=dataset)
    await asyncio.wait_for(loop.run(), timeout=5)


async def test_whoever_waits_long_is_told_how_many_groups_are_done(kit: RLKit) -> None:
    release = asyncio.Event()

    async def delay(number: int) -> None:
        if number == 3:
            await release.wait()

    loop = await kit.loop(FakeService(answer=guess), total_steps=1, dataset=GuessDataset(delay=delay))
    running = asyncio.create_task(loop.run())
    await settle()
    assert loop._slots.get_work.progress == "3 of 4 groups are done"
    release.set()
    await running


@pytest.mark.parametrize("kind", ["reference", "observations"])
async def test_a_failing_reference_ends_with_its_cause_and_no_task(kind: str) -> None:
    # Catches requests that go on after the first of them has failed.
    async def compute(sequence: tinker.ModelInput) -> Sequence[float | None]:
        if sequence.to_ints()[0] == 2:
            raise tinker.RequestFailedError("out of memory", "r", tinker.types.RequestErrorCategory.Server)
        await asyncio.Event().wait()
        raise AssertionError

    session = await open_session(FakeService(answer=guess).connect, SessionSpec(model_name="fake", lora_rank=4, seed=0))
    client = await session.client.save_weights_and_get_sampling_client()
    sampler = PolicySampler(client, 0, Sampling(max_tokens=8))
    builders = [GuessGroup(number=number, delay=jitter(0)) for number in range(4)]
    groups = [await do_group_rollout(builder, sampler, seed=0) for builder in builders]
    asked = {"reference": compute} if kind == "reference" else {"observation_logprobs": compute}
    batcher = RolloutBatcher(AdvantageSpec(kl_coef=0.1), Telemetry(), **asked)
    before = asyncio.all_tasks()
    with pytest.raises(ServiceError, match="out of memory"):
        await asyncio.wait_for(batcher(groups), timeout=5)
    assert asyncio.all_tasks() == before


async def test_concurrency_is_bounded(kit: RLKit) -> None:
    running = most = 0

    async def delay(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    dataset = GuessDataset(batch_size=12, delay=delay)
    await (await kit.loop(FakeService(answer=guess), total_steps=2, dataset=dataset, max_concurrent=3)).run()
    assert most <= 3 * 4  # four members of each group


@pytest.mark.parametrize(
    ("num_groups", "plan", "expected"),
    [
        (4, StepPlan(), [(4, True)]),
        (5, StepPlan(num_minibatches=2), [(2, False), (3, True)]),
        (4, StepPlan(num_substeps=2, num_minibatches=2), [(1, False), (1, True), (1, False), (1, True)]),
        (2, StepPlan(num_substeps=3), [(1, True), (1, True)]),
        (1, StepPlan(num_minibatches=4), [(1, True)]),
    ],
)
def test_groups_are_divided_among_pieces(num_groups: int, plan: StepPlan, expected: list[tuple[int, bool]]) -> None:
    assert plan.split(num_groups) == expected
