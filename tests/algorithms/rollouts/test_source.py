"""Synchronous, streamed and lagging rollouts: which weights each step is trained on, and what is left when it ends."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tinker
from tests.algorithms.rollouts.rl_kit import GuessDataset, RLKit, guess, jitter, rows, settle

from cookhouse.algorithms.rollouts.assembler import RolloutAssembler, RolloutPayload
from cookhouse.algorithms.rollouts.source import split_step
from cookhouse.errors import InputError
from cookhouse.rl import TrajectoryGroup
from cookhouse.settings import AdvantageSettings, UpdateSettings
from cookhouse.telemetry import Event, Record, read_metrics
from cookhouse.training import FakeService, FakeTrainingClient
from cookhouse.training.work import Assembled

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "update",
    [
        UpdateSettings(),
        UpdateSettings(num_minibatches=2),
        UpdateSettings(num_substeps=2, ppo_epochs=2),
        UpdateSettings(ppo_epochs=3),
    ],
)
async def test_without_lag_no_token_is_older_than_the_weights(rl_kit: RLKit, update: UpdateSettings) -> None:
    # Catches a sampler swapped too late, or groups of the next step begun before the weights were published.
    dataset = GuessDataset(delay=jitter(1))
    await (await rl_kit.loop(FakeService(answer=guess), update=update, dataset=dataset)).run()
    assert [trained.versions for trained in rl_kit.trained] == [[step] * 4 for step in range(5)]
    expected = [[(step, number) for number in range(4)] for step in range(5)]
    assert [sorted(trained.ids) for trained in rl_kit.trained] == expected
    for row in read_metrics(rl_kit.folder / "metrics.jsonl"):
        if update.num_substeps == 1:
            assert abs(row["optim/kl_sample_train_v1"]) < 1e-8
            assert row["optim/kl_sample_train_v2"] < 1e-8
        # The policy's own movement stands beside it.
        assert (row.get("optim/kl_ppo_epochs_v2", 0.0) > 1e-6) is (update.ppo_epochs > 1)


@pytest.mark.parametrize("lag", [1, 2, 3])
async def test_lag_never_exceeds_its_bound_stragglers_included(rl_kit: RLKit, lag: int) -> None:
    # Catches slots released by the step rather than by the publication, and stragglers that are trained on late.
    dataset = GuessDataset(num_batches=12, delay=jitter(lag, slow=[1, 9]))
    await (
        await rl_kit.loop(FakeService(answer=guess), total_steps=12, max_steps_off_policy=lag, dataset=dataset)
    ).run()
    lags = [trained.step - version for trained in rl_kit.trained for version in trained.versions]
    assert max(lags) == lag
    assert min(lags) >= 0
    used = [id_ for trained in rl_kit.trained for id_ in trained.ids]
    assert len(used) == len(set(used)) == 12 * 4, "no group is trained on twice"


async def test_a_group_that_became_too_old_is_sampled_again(rl_kit: RLKit) -> None:
    async def delay(number: int) -> None:
        if number == 1 and rl_kit.num_rollouts < 20:
            await asyncio.Event().wait()

    dataset = GuessDataset(num_batches=8, delay=delay)
    await (await rl_kit.loop(FakeService(answer=guess), total_steps=8, max_steps_off_policy=1, dataset=dataset)).run()
    assert rl_kit.pool.num_resampled > 0
    assert (0, 1) in [id_ for trained in rl_kit.trained for id_ in trained.ids]
    assert all(trained.step - version <= 1 for trained in rl_kit.trained for version in trained.versions)


@pytest.mark.parametrize("lag", [1, 2])
async def test_a_group_one_step_too_old_is_not_trained_on(rl_kit: RLKit, lag: int) -> None:
    # Catches a bound that is off by one: group 1, of the first weights, is done when step `lag + 1` takes its groups.
    async def delay(number: int) -> None:
        if number == 1 or number > 4 * (lag + 1):  # those between are enough for the steps until then
            await rl_kit.measured[lag].wait()
        for _ in range(100 if number > 4 * (lag + 1) else 0):
            await asyncio.sleep(0)

    dataset = GuessDataset(num_batches=8, delay=delay)
    await (await rl_kit.loop(FakeService(answer=guess), total_steps=8, max_steps_off_policy=lag, dataset=dataset)).run()
    lags = {
        id_: trained.step - v
        for trained in rl_kit.trained
        for id_, v in zip(trained.ids, trained.versions, strict=True)
    }
    assert max(lags.values()) == lag
    assert (0, 1) in lags


async def test_lag_makes_sampler_and_trainer_differ(rl_kit: RLKit) -> None:
    dataset = GuessDataset(num_batches=8)
    await (await rl_kit.loop(FakeService(answer=guess), total_steps=8, max_steps_off_policy=2, dataset=dataset)).run()
    rl_kit.telemetry.close()
    assert max(row["optim/kl_sample_train_v2"] for row in read_metrics(rl_kit.folder / "metrics.jsonl")) > 1e-6


async def test_minibatches_train_on_what_is_ready(rl_kit: RLKit) -> None:
    # Catches a stream that waits for the whole batch.
    release = asyncio.Event()

    async def delay(number: int) -> None:
        if number == 3:
            await release.wait()

    service = FakeService(answer=guess)
    loop = await rl_kit.loop(
        service, total_steps=1, update=UpdateSettings(num_minibatches=2), dataset=GuessDataset(delay=delay)
    )
    running = asyncio.create_task(loop.run())
    await settle()
    assert [call.kind for call in service.calls].count("forward_backward") == 1
    assert "optim_step" not in [call.kind for call in service.calls], "the gradient of half a batch is no step"
    release.set()
    await running
    assert [call.kind for call in service.calls if call.phase == "submit"].count("optim_step") == 1


async def test_substeps_are_submitted_before_the_last_is_read(rl_kit: RLKit) -> None:
    service = FakeService(answer=guess)
    await (await rl_kit.loop(service, total_steps=1, update=UpdateSettings(num_substeps=2, ppo_epochs=2))).run()
    calls = [f"{call.phase} {call.kind} {call.number}" for call in service.calls if call.kind == "optim_step"]
    assert calls[:3] == ["submit optim_step 0", "submit optim_step 1", "finish optim_step 0"]
    assert len(calls) == 2 * 4
    assert len(rows(rl_kit)) == 1, "substeps and epochs are one step"


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (UpdateSettings(ppo_epochs=3), ["forward_backward", "optim_step"] * 3),
        (UpdateSettings(num_substeps=2, ppo_epochs=2), ["forward_backward", "optim_step"] * 4),
        (UpdateSettings(num_minibatches=2, ppo_epochs=2), ["forward_backward", "forward_backward", "optim_step"] * 2),
    ],
)
async def test_every_epoch_takes_its_steps(rl_kit: RLKit, update: UpdateSettings, expected: list[str]) -> None:
    # Catches epochs whose gradients pile up for one step at the end.
    service = FakeService(answer=guess)
    await (await rl_kit.loop(service, total_steps=1, update=update)).run()
    asked = [call.kind for call in service.calls if call.phase == "submit"]
    assert [kind for kind in asked if kind in ("forward_backward", "optim_step")] == expected


async def test_all_minibatches_together_equal_the_whole_batch(new_rl_kit: Callable[[str], RLKit]) -> None:
    found = []
    for update in (UpdateSettings(), UpdateSettings(num_minibatches=4)):
        rl_kit = new_rl_kit(str(update.num_minibatches))
        await (await rl_kit.loop(FakeService(answer=guess), update=update)).run()
        found.append(rows(rl_kit))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("update", "denominators"),
    [
        ({"reduction": "none"}, [1]),
        ({"reduction": "token_mean"}, [60]),
        ({"reduction": "token_mean", "num_minibatches": 2}, [60, 60]),
        ({"reduction": "token_mean", "num_substeps": 2, "ppo_epochs": 2}, [24, 36, 24, 36]),
        ({"reduction": "mean", "num_minibatches": 2}, [3, 3]),
    ],
    ids=str,
)
async def test_the_loss_is_divided_by_the_tokens_of_the_optimizer_step(
    new_rl_kit: Callable[[str], RLKit],
    monkeypatch: pytest.MonkeyPatch,
    update: dict[str, Any],
    denominators: list[int],
) -> None:
    # Catches tokens of a piece, of all optimizer steps or of all epochs. Five groups of four answers of three tokens:
    # two groups and three where they are divided.
    sent: list[list[float]] = []
    forward_backward = FakeTrainingClient.forward_backward

    def recorded(client: FakeTrainingClient, data: list[tinker.Datum], *arguments: Any) -> Any:
        sent.append([value for datum in data for value in datum.loss_fn_inputs["advantages"].tolist()])
        return forward_backward(client, data, *arguments)

    monkeypatch.setattr(FakeTrainingClient, "forward_backward", recorded)
    for name, settings in (("plain", {**update, "reduction": "none"}), ("reduced", update)):
        loop = await new_rl_kit(name).loop(
            FakeService(answer=guess),
            update=UpdateSettings(**settings),
            dataset=GuessDataset(batch_size=5),
            total_steps=1,
        )
        await loop.run()
    plain, reduced = sent[: len(sent) // 2], sent[len(sent) // 2 :]
    expected = [np.array(values) / by for values, by in zip(plain, denominators, strict=True)]
    assert reduced == [pytest.approx(values, rel=1e-6) for values in expected]
    assert any(plain[0])


@pytest.mark.parametrize("num_minibatches", [1, 2])
async def test_a_run_does_not_depend_on_what_finishes_first(
    new_rl_kit: Callable[[str], RLKit], num_minibatches: int
) -> None:
    # Catches a stream that takes what is ready: its sums are then in another order, and differ in their last bits.
    found = []
    for seed in range(3):
        rl_kit = new_rl_kit(str(seed))
        dataset, update = GuessDataset(delay=jitter(seed)), UpdateSettings(num_minibatches=num_minibatches)
        await (await rl_kit.loop(FakeService(answer=guess), dataset=dataset, update=update)).run()
        found.append(rows(rl_kit))
    assert found[0] == found[1] == found[2]
    assert len({row[1] for row in found[0]}) > 1


async def test_rollouts_go_on_while_a_step_is_trained(rl_kit: RLKit) -> None:
    # Catches places under `max_concurrent_groups` that stay empty until the loop asks for the next step.
    has_come = asyncio.Event()

    async def delay(number: int) -> None:
        if number == 7:
            has_come.set()

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 0):
            await has_come.wait()

    service = FakeService(gate=gate, answer=guess)
    dataset = GuessDataset(delay=delay)
    loop = await rl_kit.loop(service, total_steps=3, max_steps_off_policy=1, max_concurrent_groups=1, dataset=dataset)
    await asyncio.wait_for(loop.run(), timeout=5)


async def test_whoever_waits_long_is_told_how_many_groups_are_done(rl_kit: RLKit) -> None:
    class Waiting:
        def __init__(self) -> None:
            self.is_said = asyncio.Event()

        def write(self, record: Record) -> None:
            said = record.text["what"] if isinstance(record, Event) and record.name == "run.waiting" else ""
            if said == "get_batch of step 1: 3 of 4 groups are done":
                self.is_said.set()

        def close(self) -> None: ...

    waiting = Waiting()

    async def delay(number: int) -> None:
        if number == 3:
            await waiting.is_said.wait()

    dataset = GuessDataset(delay=delay)
    loop = await rl_kit.loop(FakeService(answer=guess), total_steps=1, dataset=dataset, patience_seconds=0.02)
    rl_kit.telemetry.add(waiting)
    async with asyncio.timeout(60):  # instead of for ever, where it is never said
        await loop.run()


async def test_concurrency_is_bounded(rl_kit: RLKit) -> None:
    running = most = 0

    async def delay(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    dataset = GuessDataset(batch_size=12, delay=delay)
    await (await rl_kit.loop(FakeService(answer=guess), total_steps=2, dataset=dataset, max_concurrent_groups=3)).run()
    assert most <= 3 * 4  # four members of each group


@pytest.mark.parametrize(
    ("num_groups", "update", "expected"),
    [
        (4, UpdateSettings(), [(4, True)]),
        (5, UpdateSettings(num_minibatches=2), [(2, False), (3, True)]),
        (4, UpdateSettings(num_substeps=2, num_minibatches=2), [(1, False), (1, True), (1, False), (1, True)]),
        (2, UpdateSettings(num_substeps=3), [(1, True), (1, True)]),
        (1, UpdateSettings(num_minibatches=4), [(1, True)]),
    ],
)
def test_groups_are_divided_among_pieces(
    num_groups: int, update: UpdateSettings, expected: list[tuple[int, bool]]
) -> None:
    assert split_step(update, num_groups) == expected


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (RolloutPayload(num_datums_P=[1]), r"num_datums_P is \[1\] of 4 groups with 16 datums; give how many each has"),
        (
            RolloutPayload(num_datums_P=[4] * 4, num_datums_P_G=[[1, 2]] * 4),
            "give for each group numbers whose sum is its own of num_datums_P",
        ),
    ],
)
async def test_an_assembler_that_does_not_say_whose_its_datums_are_is_refused(
    rl_kit: RLKit, payload: RolloutPayload, reason: str
) -> None:
    """Catches a RuntimeError about a generator, or datums that are left out without a word."""
    usual = RolloutAssembler(AdvantageSettings(), rl_kit.telemetry)

    async def assemble(groups: Sequence[TrajectoryGroup]) -> Assembled[RolloutPayload]:
        return replace(await usual(groups), payload=payload)

    loop = await rl_kit.loop(FakeService(answer=guess), assemble=assemble)
    with pytest.raises(InputError, match=reason):
        await loop.run()


async def test_an_assembler_need_not_know_of_advantages(rl_kit: RLKit) -> None:
    usual = RolloutAssembler(AdvantageSettings(), rl_kit.telemetry)

    async def assemble(groups: Sequence[TrajectoryGroup]) -> Assembled[RolloutPayload]:
        made = await usual(groups)
        return replace(made, payload=RolloutPayload(num_datums_P=made.payload.num_datums_P))

    loop = await rl_kit.loop(FakeService(answer=guess), assemble=assemble, update=UpdateSettings(num_substeps=2))
    await loop.run()
    assert [len(trained.ids) for trained in rl_kit.trained] == [4] * 5
