"""A worker on Ray: what it is told and tells crosses whole, and whatever ends it is told once."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import Done, ForwardBackwardOutput, Logged, Lost, Up
from tests.engine.transports.calls import LONG_SECONDS, a_pass, answer, do, is_lost, is_up, reason, run, told
from tests.engine.transports.ray.clusters import ELSEWHERE, HERE, TwoNodes, is_running, pid_of, running
from tests.waiting import wait_until

pytestmark = pytest.mark.ray


@pytest.mark.parametrize("needs", [HERE, ELSEWHERE], ids=["here", "elsewhere"])
def test_up_comes_first_then_answers_in_order(ray_cluster: TwoNodes, tmp_path: Path, needs: Any) -> None:
    """Would catch commands that Ray's threads bring out of order."""

    async def test() -> None:
        with ray_cluster.workers(needs) as workers:
            async with running(workers, tmp_path) as worker:
                for index in range(300):
                    worker.submit([a_pass(2, 3, str(index))])
                events = await told(worker, lambda event: getattr(event, "command_id", None) == "299")
                assert isinstance(events[0], Up)
                answered = [event.command_id for event in events if isinstance(event, Done)]
                assert answered == [str(index) for index in range(300)]
                assert await worker.close(LONG_SECONDS)

    run(test())


def test_arrays_of_many_megabytes_cross_both_ways(ray_cluster: TwoNodes, tmp_path: Path) -> None:
    async def test() -> None:
        with ray_cluster.workers(ELSEWHERE) as workers:
            async with running(workers, tmp_path) as worker:
                done = await answer(worker, a_pass(64, 50_000))
                assert isinstance(done, Done)
                assert isinstance(done.output, ForwardBackwardOutput)
                for index, array in enumerate(done.output.logprobs_D):
                    np.testing.assert_array_equal(array, np.arange(index, index + 50_000, dtype=np.float32))

    run(test())


def test_its_log_comes_with_its_node(ray_cluster: TwoNodes, tmp_path: Path) -> None:
    """Would catch a warning of which nobody can tell where it was given."""

    async def test() -> None:
        with ray_cluster.workers(ELSEWHERE) as workers:
            workers.engine_options = {"note": "it is warm here"}
            async with running(workers, tmp_path) as worker:
                (record,) = (one for one in await told(worker, is_up) if isinstance(one, Logged))
                assert record.name == "tests.child"
                assert record.message.startswith("node ")
                assert record.message.endswith(": it is warm here")

    run(test())


@pytest.mark.parametrize("needs", [HERE, ELSEWHERE], ids=["here", "elsewhere"])
def test_a_killed_actor_is_told_once_and_another_takes_its_place(
    ray_cluster: TwoNodes, tmp_path: Path, needs: Any
) -> None:
    """Would catch a server that waits for ever, and a place on the node that stays taken."""

    async def test() -> None:
        with ray_cluster.workers(needs) as workers:
            async with running(workers, tmp_path) as first:
                pid = await pid_of(first)
                first.submit([do("sleep 3600")])
                os.kill(pid, signal.SIGKILL)
                assert "its actor died" in await reason(first)
                async with running(workers, tmp_path) as second:
                    assert await pid_of(second) != pid

    run(test())


def test_one_that_does_not_end_is_killed(ray_cluster: TwoNodes, tmp_path: Path) -> None:
    async def test() -> None:
        with ray_cluster.workers(ELSEWHERE) as workers:
            async with running(workers, tmp_path) as worker:
                pid = await pid_of(worker)
                worker.submit([do("sleep 3600")])
                assert not await worker.close(0.5)
                wait_until(lambda: not is_running(pid))
            async with running(workers, tmp_path) as another:
                await pid_of(another)

    run(test())


@pytest.mark.parametrize(
    ("what", "why"), [("exit 3", "its actor died"), ("raise too bad", "RuntimeError: too bad"), ("lose it", "it")]
)
def test_whatever_ends_it_is_told_once_in_words(ray_cluster: TwoNodes, tmp_path: Path, what: str, why: str) -> None:
    async def test() -> None:
        with ray_cluster.workers(ELSEWHERE) as workers:
            async with running(workers, tmp_path) as worker:
                worker.submit([do(what)])
                assert why in await reason(worker)
                worker.submit([do("nothing more is answered")])
                assert await worker.events() == []

    run(test())


def test_one_that_cannot_make_its_engine_says_who_is_to_blame(ray_cluster: TwoNodes, tmp_path: Path) -> None:
    async def test() -> None:
        with ray_cluster.workers(ELSEWHERE) as workers:
            workers.engine_options = {"refusal": "no such base model: nonsense; name another"}
            async with running(workers, tmp_path) as worker:
                lost = (await told(worker, is_lost))[-1]
                assert isinstance(lost, Lost)
                assert lost.failure is not None
                assert (lost.failure.blame, lost.failure.kind) == ("user", "input")
                assert lost.failure.message == "no such base model: nonsense; name another"

    run(test())


def test_a_driver_that_is_killed_loses_its_workers_and_the_next_call_starts_another(
    ray_cluster: TwoNodes, tmp_path: Path
) -> None:
    async def test() -> None:
        with ray_cluster.workers(ELSEWHERE) as workers:
            async with running(workers, tmp_path) as first:
                pid = await pid_of(first)
                assert workers.pid is not None
                os.kill(workers.pid, signal.SIGKILL)
                assert await reason(first) == "Ray's driver: killed by signal 9 (out of memory?)"
                async with running(workers, tmp_path) as second:
                    await pid_of(second)
                    wait_until(lambda: not is_running(pid))

    run(test())
