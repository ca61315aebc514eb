"""Runs that end at a step because their time is over or SIGUSR1 came: saved, told why, and gone on with."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import chz
import pytest
from tests.recipes.events import Events

import cookhouse
from cookhouse.adapters import Adapters
from cookhouse.recipes import run_async
from cookhouse.recipes.run_sweep import NAME
from cookhouse.recipes.supervised import SupervisedConfig
from cookhouse.runs import read_history
from cookhouse.telemetry import events, read_metrics
from cookhouse.training import FakeService, Interrupt
from cookhouse.weights.checkpoints import CheckpointFile

pytestmark = pytest.mark.anyio

MakeConfig = Callable[..., SupervisedConfig]


def at(kind: str, number: int, *signals: signal.Signals) -> Callable[[str, int], Any]:
    """A gate that sends this process signals at a request."""

    async def gate(asked: str, count: int) -> None:
        if (asked, count) == (kind, number):
            for each in signals:
                os.kill(os.getpid(), each)
                await asyncio.sleep(0.01)

    return gate


def losses(folder: Path) -> list[float]:
    return [row["train/loss"] for row in read_metrics(folder / "metrics.jsonl") if "train/loss" in row]


def saved(folder: Path) -> list[str]:
    return [each.name for each in CheckpointFile(folder / "checkpoints.jsonl").read()]


async def finish(make_config: MakeConfig, service: FakeService, **settings: Any) -> Any:
    config = make_config(**settings, behavior_if_log_dir_exists="resume")
    again = FakeService(states=service.states)
    result = await run_async("supervised", config, adapters=Adapters(service=again.connect, sinks=[]))
    return result, again


@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGUSR1],
        [signal.SIGUSR1, signal.SIGUSR1],
        [signal.SIGUSR1, signal.SIGINT],
    ],
)
async def test_sigusr1_ends_a_run_at_a_step_and_it_goes_on(
    make_config: MakeConfig, tmp_path: Path, signals: list[signal.Signals]
) -> None:
    """Catches the default action, which kills, a second one, or Ctrl-C after it, that stops at once, and lost steps."""
    told = Events()
    service = FakeService(gate=at("optim_step", 1, *signals))
    adapters = Adapters(service=service.connect, sinks=[told])
    result = await run_async("supervised", make_config(save_every=0), adapters=adapters)
    folder, steps = tmp_path / "run", result.summary.num_steps
    assert result.summary.is_interrupted
    assert result.summary.stopped == "SIGUSR1 came"
    assert "behavior_if_log_dir_exists=resume" in result.summary.next_command
    assert 2 <= steps < result.summary.total_steps
    assert saved(folder) == [f"{steps:06}"]
    assert [event.text["text"] for event in told.all if event.name == events.RUN_ENDS] == ["SIGUSR1 came"]
    assert told.names.count(events.RUN_INTERRUPT) == signals.count(signal.SIGINT)
    history = read_history(folder)
    assert (history.status, history.launches[-1].stopped) == ("interrupted", "SIGUSR1 came")
    assert service.closed_with == "interrupted"

    done, _ = await finish(make_config, service, save_every=0)
    assert done.summary.stopped is None
    whole = make_config(save_every=0, log_path=str(tmp_path / "whole"))
    await run_async("supervised", whole, adapters=Adapters(service=FakeService().connect, sinks=[]))
    assert losses(folder) == losses(tmp_path / "whole")


async def test_ctrl_c_before_sigusr1_stays_an_interrupt(make_config: MakeConfig) -> None:
    service = FakeService(gate=at("optim_step", 1, signal.SIGINT, signal.SIGUSR1))
    result = await run_async("supervised", make_config(), adapters=Adapters(service=service.connect, sinks=[]))
    assert (result.summary.is_interrupted, result.summary.stopped) == (True, None)


async def test_a_second_ctrl_c_after_sigusr1_stops_at_once(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cookhouse.training.interrupt._ONE_SECONDS", 0)
    service = FakeService(gate=at("optim_step", 1, signal.SIGUSR1, signal.SIGINT, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        await run_async("supervised", make_config(), adapters=Adapters(service=service.connect, sinks=[]))


async def test_sigusr1_before_the_first_step_trains_nothing_and_is_gone_on_with(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    service = FakeService(gate=at("create_model", 0, signal.SIGUSR1))
    result = await run_async("supervised", make_config(), adapters=Adapters(service=service.connect, sinks=[]))
    assert (result.summary.num_steps, result.summary.stopped) == (0, "SIGUSR1 came")
    assert not [call for call in service.calls if call.kind == "optim_step"]
    done, _ = await finish(make_config, service)
    assert len(losses(tmp_path / "run")) == done.summary.total_steps


async def test_the_final_evaluation_is_left_and_measured_by_the_resumed_run(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    """Catches a batch job that is killed in the midst of an evaluation, since nothing looked at the request."""

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("sample", 4):  # the first after those that are asked before training
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.Event().wait()

    service = FakeService(gate=gate)
    config = make_config(save_every=0)
    result = await run_async("supervised", config, adapters=Adapters(service=service.connect, sinks=[]))
    assert (result.summary.is_interrupted, result.summary.stopped) == (True, "SIGUSR1 came")
    assert result.summary.num_steps == result.summary.total_steps
    assert saved(tmp_path / "run") == ["final"]
    assert result.summary.after("test/nll") is None
    done, again = await finish(make_config, service, save_every=0)
    assert not [call for call in again.calls if call.kind == "optim_step"]
    assert done.summary.after("test/nll") is not None


async def test_what_cancels_a_run_later_is_not_taken_for_its_end() -> None:
    """Catches a request to end, granted later, that swallows the cancelling of a run whose service has died."""
    interrupt = Interrupt()

    async def body() -> None:
        with interrupt.left_at_end(), interrupt.deferred():
            interrupt.end("the time is over")
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(body())


async def test_max_minutes_ends_a_run_and_each_resume_has_as_many_again(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    interrupt = Interrupt()

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 1):
            await interrupt.requested()

    service = FakeService(gate=gate)
    adapters = Adapters(service=service.connect, sinks=[])
    result = await run_async("supervised", make_config(max_minutes=1e-3), adapters=adapters, interrupt=interrupt)
    assert result.summary.stopped == "the time is over: max_minutes=0.001"
    assert result.summary.num_steps < result.summary.total_steps
    done, _ = await finish(make_config, service, max_minutes=60)  # a resume may set it anew
    assert not done.summary.is_interrupted
    assert len(losses(tmp_path / "run")) == done.summary.total_steps


def test_a_sweep_ends_as_a_whole_and_goes_on(tmp_path: Path, conversations: Callable[..., Path]) -> None:
    """Catches a limit of each run alone, by which a sweep of ten takes ten times as long as it may."""
    data = {"dataset_path": str(conversations()), "test_path": str(conversations("test.jsonl", 4))}
    small = {"batch_size": 4, "num_samples": 0, "num_eval": 0}
    settings = {**data, **small, "log_path": str(tmp_path / "runs" / "sweep")}
    grid = {"learning_rate": [1e-3, 1e-2, 1e-1]}
    service = FakeService(gate=at("optim_step", 1, signal.SIGUSR1))
    adapters = Adapters(service=service.connect, sinks=[])
    limited = {**settings, "max_minutes": 600}
    result = cookhouse.sweep("supervised", limited, grid=grid, adapters=adapters)
    assert (result.summary.is_interrupted, result.summary.stopped) == (True, "SIGUSR1 came")
    assert len(result.state.results) == 1
    assert result.state.config.max_minutes == 600
    assert all("max_minutes" not in run for run in result.state.config.runs)
    again = replace(adapters, service=FakeService(states=service.states).connect)
    resumed = {**chz.asdict(result.state.config), "behavior_if_log_dir_exists": "resume"}
    done = cookhouse.run(NAME, resumed, adapters=again)
    assert (done.summary.is_interrupted, len(done.state.results)) == (False, 3)
