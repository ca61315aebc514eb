"""The loop's promises: what is in flight when, what a save sees, and what is left when it ends early."""

import asyncio
import time
from typing import Any

import pytest
import tinker

from cookhouse.errors import InputError, ServiceError
from cookhouse.telemetry import Event, Record, read_metrics
from cookhouse.training import Cadence, FakeService, Interrupt, ScheduledEvaluation

pytestmark = pytest.mark.anyio

TRAINING = ("forward_backward", "optim_step", "save_state", "snapshot")


def order(service: FakeService, *kinds: str) -> list[str]:
    return [f"{call.phase} {call.kind} {call.number}" for call in service.calls if call.kind in (kinds or TRAINING)]


def scheduled(evaluation: Any, every: int, *, at_start: bool = True) -> ScheduledEvaluation:
    return ScheduledEvaluation(name="held out", evaluation=evaluation, cadence=Cadence(every=every, at_start=at_start))


async def test_next_step_is_submitted_before_the_last_is_finished(kit: Any) -> None:
    # Catches a loop that awaits each request: the service would stand idle between steps.
    service = FakeService()
    await (await kit.loop(service, total_steps=3)).run()
    assert order(service) == [
        "submit forward_backward 0",
        "submit optim_step 0",
        "submit forward_backward 1",
        "submit optim_step 1",
        "finish forward_backward 0",
        "finish optim_step 0",
        "submit forward_backward 2",
        "submit optim_step 2",
        "finish forward_backward 1",
        "finish optim_step 1",
        "finish forward_backward 2",
        "finish optim_step 2",
    ]


@pytest.mark.parametrize("lookahead", [0, 1, 3])
async def test_lookahead_bounds_the_steps_in_flight(kit: Any, lookahead: int) -> None:
    service = FakeService()
    await (await kit.loop(service, lookahead=lookahead)).run()
    in_flight = most = 0
    for call in service.calls:
        if call.kind == "optim_step":
            in_flight += 1 if call.phase == "submit" else -1
            most = max(most, in_flight)
    assert most == lookahead + 1


async def test_save_is_requested_with_the_step_it_belongs_to(kit: Any) -> None:
    # Catches a save requested when its step finishes: by then later steps are in, and the weights are theirs.
    service = FakeService()
    await (await kit.loop(service, total_steps=4, save_every=2)).run()
    submits = [line for line in order(service) if line.startswith("submit")]
    assert submits[3:6] == ["submit optim_step 1", "submit save_state 0", "submit forward_backward 2"]
    assert [(saved.step, saved.batch, saved.epoch) for saved in kit.checkpoints.read()] == [(2, 2, 0)]


async def test_save_after_the_last_step_is_left_to_the_workflow(kit: Any) -> None:
    service = FakeService()
    await (await kit.loop(service, total_steps=4, save_every=4)).run()
    assert kit.checkpoints.read() == []


async def test_evaluation_sees_the_weights_before_its_step(kit: Any, evaluation: Any) -> None:
    service = FakeService()
    await (await kit.loop(service, total_steps=5, evaluate=[scheduled(evaluation, 2)])).run()
    kit.telemetry.close()
    submits = [line for line in order(service) if line.startswith("submit")]
    assert submits[0] == "submit snapshot 0"
    assert submits[5:7] == ["submit snapshot 1", "submit forward_backward 2"]
    assert evaluation.steps == [0, 2, 4]
    rows = read_metrics(kit.folder / "metrics.jsonl")
    assert [row.get("test/step") for row in rows] == [0.0, None, 2.0, None, 4.0]


async def test_each_evaluation_has_its_own_steps(kit: Any, evaluation: Any, rare_evaluation: Any) -> None:
    # Catches one cadence for all of them, and figures of one that take the place of another's.
    evaluate = [scheduled(evaluation, 2), scheduled(rare_evaluation, 3, at_start=False)]
    await (await kit.loop(FakeService(), total_steps=7, evaluate=evaluate)).run()
    kit.telemetry.close()
    assert (evaluation.steps, rare_evaluation.steps) == ([0, 2, 4, 6], [3, 6])
    rows = read_metrics(kit.folder / "metrics.jsonl")
    assert [row.get("test/step") for row in rows] == [0.0, None, 2.0, None, 4.0, None, 6.0]
    assert [row.get("rare/step") for row in rows] == [None, None, None, 3.0, None, None, 6.0]


async def test_steps_beside_a_long_evaluation_take_their_own_time(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches an evaluation that is counted as time of its step, and a step that is over in no time as it was computed
    # meanwhile, whose tokens per second are then thousands of times those of the others.
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    is_answered = [asyncio.Event() for _ in range(6)]

    async def gate(kind: str, number: int) -> None:
        nonlocal now
        if kind == "forward_backward":
            now += 1.0
        if kind == "optim_step":
            is_answered[number].set()

    async def pass_time(seconds: float, *, after: int) -> None:
        """Let time pass when a step is answered, and the one behind it prepared."""
        nonlocal now
        async with asyncio.timeout(20):  # for ever where nobody reads answers meanwhile
            await is_answered[after].wait()
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.wait({source._prepared})
        now += seconds

    class Long:
        async def begin(self, client: Any, step: int) -> Any:
            del client
            if step:
                await pass_time(10.0, after=step - 1)
            return self._finish(step)

        async def _finish(self, step: int) -> Any:
            await pass_time(100.0, after=step + 1)
            return {"test/step": float(step)}

    loop = await kit.loop(FakeService(gate=gate), total_steps=6, evaluate=[scheduled(Long(), 3)])
    source = loop._slots.get_work
    await loop.run()
    kit.telemetry.close()
    rows = read_metrics(kit.folder / "metrics.jsonl")
    assert [row["time/step_seconds"] for row in rows] == [1.0] * 6


async def test_interrupt_finishes_what_is_in_flight_and_saves(kit: Any) -> None:
    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 1):
            kit.interrupt.request()

    service = FakeService(gate=gate)
    outcome = await (await kit.loop(service)).run()
    assert outcome.is_interrupted
    # Steps 0 to 2 were submitted when step 1 was being finished; all three count, and nothing follows but the save.
    assert outcome.cursor.step == 3
    assert order(service)[-2:] == ["submit save_state 0", "finish save_state 0"]
    assert kit.checkpoints.last_state().cursor == outcome.cursor


async def test_interrupt_while_work_is_prepared_does_not_lose_that_work(kit: Any) -> None:
    # Catches a cursor taken from the source after a batch was drawn but not submitted: a resume would skip it.
    loop = await kit.loop(FakeService())
    draw = loop._slots.get_work.next_work

    async def interrupted_draw() -> Any:
        work = await draw()
        if work.cursor.step == 2:
            kit.interrupt.request()
        return work

    loop._slots.get_work.next_work = interrupted_draw
    assert (await loop.run()).cursor.step == 2


async def test_interrupt_right_after_a_save_does_not_save_twice(kit: Any) -> None:
    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 1):
            kit.interrupt.request()

    service = FakeService(gate=gate)
    await (await kit.loop(service, save_every=3)).run()
    assert order(service, "save_state") == ["submit save_state 0", "finish save_state 0"]


@pytest.mark.parametrize("stop_at", [1, 2, 4])
async def test_resumed_losses_equal_uninterrupted_ones_to_the_bit(new_kit: Any, stop_at: int) -> None:
    # Catches state that a resume loses: moments, data order of a later epoch, learning rate, the batch being next.
    whole = new_kit("whole")
    await (await whole.loop(FakeService(), total_steps=8)).run()

    states: dict[str, Any] = {}
    parts = new_kit("parts")

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", stop_at):
            parts.interrupt.request()

    await (await parts.loop(FakeService(states=states, gate=gate), total_steps=8)).run()
    parts.interrupt = Interrupt()
    await (await parts.loop(FakeService(states=states), total_steps=8)).run()
    for each in (whole, parts):
        each.telemetry.close()
    columns = ("step", "train/loss", "optim/grad_norm", "optim/lr", "progress/epoch", "progress/batch")
    expected, found = (
        [[row[column] for column in columns] for row in read_metrics(each.folder / "metrics.jsonl")]
        for each in (whole, parts)
    )
    assert found == expected
    assert len({row[1] for row in expected}) == 8  # the losses do change, so that equality says something


@pytest.mark.parametrize(("pause_at", "lookahead"), [(1, 1), (2, 0), (5, 3)])
async def test_a_pause_changes_nothing_of_what_is_trained(
    new_kit: Any, evaluation: Any, pause_at: int, lookahead: int
) -> None:
    # Catches a schedule that ends at the pause, a step beyond it, a save of other weights, and a pause without figures.
    whole = new_kit("whole")
    await (await whole.loop(FakeService(), total_steps=8, lookahead=lookahead)).run()
    states: dict[str, Any] = {}
    parts = new_kit("parts")
    evaluate = [scheduled(evaluation, 0, at_start=False)]
    service = FakeService(states=states)
    paused = await parts.loop(service, total_steps=8, lookahead=lookahead, pause_at=pause_at, evaluate=evaluate)
    outcome = await paused.run()
    assert (outcome.is_paused, outcome.is_interrupted, outcome.cursor.step) == (True, False, pause_at)
    steps = [call for call in service.calls if (call.kind, call.phase) == ("optim_step", "submit")]
    assert len(steps) == pause_at
    assert [saved.step for saved in parts.checkpoints.read()] == [pause_at]
    assert evaluation.steps == [pause_at]
    parts.telemetry.close()
    assert read_metrics(parts.folder / "metrics.jsonl")[-1] == {"step": pause_at, "test/step": pause_at}

    again = await (await parts.loop(FakeService(states=states), total_steps=8, pause_at=pause_at)).run()
    assert (again.is_paused, again.cursor.step) == (True, pause_at), "launched again, it has no further step to take"
    outcome = await (await parts.loop(FakeService(states=states), total_steps=8)).run()
    assert (outcome.is_paused, outcome.cursor.step) == (False, 8)
    for each in (whole, parts):
        each.telemetry.close()
    columns = ("step", "train/loss", "optim/grad_norm", "optim/lr", "progress/epoch", "progress/batch")
    expected, found = (
        [
            [row[column] for column in columns]
            for row in read_metrics(each.folder / "metrics.jsonl")
            if "optim/lr" in row
        ]
        for each in (whole, parts)
    )
    assert found == expected


async def test_no_run_pauses_at_its_end_or_while_it_is_interrupted(kit: Any, evaluation: Any) -> None:
    # Catches a last step that is taken for a pause, whose weights nobody then saves as final.
    outcome = await (await kit.loop(FakeService(), total_steps=3, pause_at=3)).run()
    assert not outcome.is_paused
    kit.interrupt.request()
    evaluate = [scheduled(evaluation, 0, at_start=False)]
    outcome = await (await kit.loop(FakeService(), total_steps=3, pause_at=1, evaluate=evaluate)).run()
    assert (outcome.is_interrupted, outcome.is_paused) == (True, False)
    assert evaluation.steps == []


async def test_cancelling_leaves_no_task(kit: Any, evaluation: Any) -> None:
    reached = asyncio.Event()

    async def gate(kind: str, _: int) -> None:
        if kind in ("snapshot", "forward_backward"):
            reached.set()
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    loop = await kit.loop(FakeService(gate=gate), evaluate=[scheduled(evaluation, 0)])
    running = asyncio.create_task(loop.run())
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == before


async def test_failed_step_raises_and_leaves_no_task(kit: Any, evaluation: Any) -> None:
    async def gate(kind: str, number: int) -> None:
        if kind == "snapshot":
            await asyncio.Event().wait()
        if (kind, number) == ("forward_backward", 0):
            raise tinker.RequestFailedError("out of memory", "r-1", tinker.types.RequestErrorCategory.Server)

    before = asyncio.all_tasks()
    loop = await kit.loop(FakeService(gate=gate), evaluate=[scheduled(evaluation, 0)])
    with pytest.raises(ServiceError, match=r"out of memory \(while forward_backward of step 1\)"):
        await loop.run()
    assert asyncio.all_tasks() == before


async def test_refused_step_is_the_callers_error(kit: Any) -> None:
    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 1):
            raise tinker.RequestFailedError("token 9999 is out", "r-1", tinker.types.RequestErrorCategory.User)

    with pytest.raises(InputError, match="token 9999 is out"):
        await (await kit.loop(FakeService(gate=gate))).run()


class Waiting:
    """Notices the event that says that a run waits for something. On a busy machine it may wait for others before."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.is_said = asyncio.Event()

    def write(self, record: Record) -> None:
        if isinstance(record, Event) and record.name == "run.waiting" and record.text["what"] == self._what:
            self.is_said.set()

    def close(self) -> None: ...


async def test_stalled_run_says_what_it_waits_for(kit: Any) -> None:
    waiting = Waiting("optim_step of step 2")

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("forward_backward", 0):
            await asyncio.sleep(0.05)  # as on a busy machine: this is waited for, too, and said
        if (kind, number) == ("optim_step", 1):
            await waiting.is_said.wait()

    async with asyncio.timeout(60):  # instead of for ever, where it is never said
        await (await kit.loop(FakeService(gate=gate), sinks=[waiting], patience_seconds=0.02)).run()
