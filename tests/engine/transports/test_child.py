"""A worker in a process of its own: it answers as any other, and whatever ends it, or its parent, ends it in order."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import Done, Event, Failed, ForwardBackwardOutput, Logged, Lost, Up
from cookhouse.engine.transports.child import Child
from tests.engine.transports.calls import (
    FAKE_CHILD,
    LONG_SECONDS,
    a_pass,
    answer,
    do,
    is_lost,
    is_up,
    options,
    reason,
    run,
    told,
)


@contextlib.asynccontextmanager
async def running(folder: Path, command: Sequence[str] = FAKE_CHILD, **engine_options: Any) -> AsyncIterator[Child]:
    """A child that has been told to begin, killed in the end."""
    child = Child(command)
    child.begin(options(folder), engine_options)
    try:
        yield child
    finally:
        await child.close(0)
        assert not is_alive(child.pid)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_up_comes_first_then_answers_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as child:
            child.submit([a_pass(2, 3, str(index)) for index in range(50)])
            events = await told(child, lambda event: getattr(event, "command_id", None) == "49")
            assert isinstance(events[0], Up)
            assert events[0].worker == "w1"
            assert [event.command_id for event in events[1:] if isinstance(event, Done)] == [str(i) for i in range(50)]

    run(test())


def test_arrays_of_many_megabytes_cross_both_ways(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as child:
            done = await answer(child, a_pass(64, 50_000))
            assert isinstance(done, Done)
            assert isinstance(done.output, ForwardBackwardOutput)
            assert len(done.output.logprobs_D) == 64
            for index, array in enumerate(done.output.logprobs_D):
                np.testing.assert_array_equal(array, np.arange(index, index + 50_000, dtype=np.float32))

    run(test())


def test_killed_at_twenty_moments_it_has_answered_each_once_or_not_at_all(tmp_path: Path) -> None:
    async def killed(seed: int) -> None:
        chosen = random.Random(seed)
        num_commands = 60
        async with running(tmp_path) as child:
            sizes = [chosen.choice([1, 100, 30_000]) for _ in range(num_commands)]
            child.submit([a_pass(2, size, str(index)) for index, size in enumerate(sizes)])
            num_told, moment = 0, chosen.randrange(num_commands + 1)
            events: list[Event] = []
            while not any(is_lost(event) for event in events):
                if num_told <= moment < (num_told := len(events) + 1):
                    os.kill(child.pid, signal.SIGKILL)
                events += await child.events()
            assert events[-1] == Lost(worker="w1", reason="killed by signal 9 (out of memory?)")
            answers = [event for event in events if isinstance(event, Done)]
            assert [done.command_id for done in answers] == [str(index) for index in range(len(answers))]
            for done, size in zip(answers, sizes, strict=False):
                assert isinstance(done.output, ForwardBackwardOutput)
                np.testing.assert_array_equal(done.output.logprobs_D[1], np.arange(1, size + 1, dtype=np.float32))
            assert len(events) == len(answers) + any(map(is_up, events)) + 1
            assert await child.events() == []

    async def test() -> None:
        turns = asyncio.Semaphore(4)

        async def one(seed: int) -> None:
            async with turns:
                await killed(seed)

        await asyncio.gather(*(one(seed) for seed in range(20)))

    run(test())


@pytest.mark.parametrize("work", ["", "sleep 3600", "spin"], ids=["not begun", "in a long pass", "in Python"])
def test_it_ends_when_its_parent_is_killed(work: str) -> None:
    """Our end of stderr ends with the last process that has it."""
    command = [sys.executable, "-m", "tests.engine.transports.parent", work]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"at work\n"
        parent.kill()
        _, said = parent.communicate(timeout=LONG_SECONDS)
        assert said == b""


def test_its_death_is_seen_while_a_process_that_it_started_lives(tmp_path: Path) -> None:
    """A compiler that inherited the socket would keep it open."""

    async def test() -> None:
        async with running(tmp_path) as child:
            done = await answer(child, do("leave 3600"))
            assert isinstance(done, Done)
            assert isinstance(done.output, bytes)
            try:
                os.kill(child.pid, signal.SIGKILL)
                assert await reason(child) == "killed by signal 9 (out of memory?)"
            finally:
                os.kill(int(done.output), signal.SIGKILL)

    run(test())


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("exit 3", "ended with exit code 3"),
        ("crash", "killed by signal 11 (Segmentation fault)"),
        ("raise too bad", "RuntimeError: too bad"),
        ("lose it", "it"),
    ],
)
def test_whatever_ends_it_is_told_once_in_words(what: str, why: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as child:
            child.submit([do(what)])
            assert await reason(child) == why
            child.submit([do("nothing more is answered")])
            assert await child.events() == []
            assert await child.close(LONG_SECONDS)

    run(test())


def test_a_crash_is_seen_on_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with running(tmp_path) as child:
            child.submit([do("crash")])
            await reason(child)

    run(test())
    assert "Fatal Python error: Segmentation fault" in capfd.readouterr().err


def test_its_stderr_is_ours_as_it_is_when_it_begins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A server that waits to be told what to serve is given its log after it started its child."""

    async def test() -> None:
        child = Child(FAKE_CHILD)
        ours = os.dup(2)
        with (tmp_path / "server.log").open("wb") as log:
            os.dup2(log.fileno(), 2)
        child.begin(options(tmp_path), {})
        os.dup2(ours, 2)
        os.close(ours)
        child.submit([do("crash")])
        await reason(child)

    run(test())
    assert "Segmentation fault" in (tmp_path / "server.log").read_text()
    assert capfd.readouterr().err == ""


def test_one_that_cannot_make_its_engine_says_who_is_to_blame(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, refusal="no such base model: nonsense; name another") as child:
            (lost,) = await told(child, is_lost)
            assert isinstance(lost, Lost)
            assert lost.worker == "w1"
            assert lost.failure is not None
            assert (lost.failure.blame, lost.failure.kind) == ("user", "input")
            assert lost.failure.message == "no such base model: nonsense; name another"

    run(test())


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import os, sys; os.write(int(sys.argv[-1]), bytes(100))", "what it said is no message: .*0 bytes"),
        (
            "import os, socket, sys, time; os.close(int(sys.argv[-1])); time.sleep(3600)",
            "it closed its socket",
        ),
    ],
)
def test_one_that_never_speaks_is_lost(program: str, why: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, (sys.executable, "-c", program)) as child:
            (lost,) = await told(child, is_lost)
            assert isinstance(lost, Lost)
            assert lost.reason.startswith(why.partition(".*")[0])

    run(test())


def test_one_that_hangs_blocks_nobody_and_is_killed(tmp_path: Path) -> None:
    """It reads nothing, so far more is sent than the socket holds."""

    async def test() -> None:
        async with running(tmp_path, (sys.executable, "-c", "import time; time.sleep(3600)")) as child:
            child.submit([a_pass(8, 500_000)])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(child.events(), 0.05)
            assert not await child.close(0.05)
            assert await child.events() == []

    run(test())


def test_a_command_that_is_none_is_the_callers_error() -> None:
    with pytest.raises(FileNotFoundError):
        Child(["/no/such/program"])


def test_it_ends_in_order_and_can_be_closed_twice(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as child:
            await told(child, is_up)
            child.submit([do("sleep 0.1", "last")])
            waiting = asyncio.create_task(told(child, lambda event: isinstance(event, Done)))
            assert await child.close(LONG_SECONDS)
            assert [event.command_id for event in await waiting if isinstance(event, Done)] == ["last"]
            assert await child.events() == []
            assert await child.close(LONG_SECONDS)
            child.submit([do("nothing more is answered")])
            assert await child.events() == []

    run(test())


def test_one_in_a_long_pass_is_killed_when_closed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as child:
            await told(child, is_up)
            child.submit([do("sleep 3600")])
            waiting = asyncio.create_task(child.events())
            assert not await child.close(0.05)
            assert await waiting == []

    run(test())


def test_one_that_has_not_begun_can_be_closed() -> None:
    async def test() -> None:
        child = Child(FAKE_CHILD)
        assert await child.close(LONG_SECONDS)
        assert not is_alive(child.pid)
        assert await child.events() == []

    run(test())


def test_signals_to_all_of_a_terminal_or_service_do_not_reach_it(tmp_path: Path) -> None:
    """Ctrl-C is for the foreground's processes; a service manager sends SIGTERM to each."""

    async def test() -> None:
        async with running(tmp_path) as child:
            await told(child, is_up)
            assert os.getsid(child.pid) == child.pid
            assert isinstance(await answer(child, do("interrupt")), Done)
            assert isinstance(await answer(child, do("sleep 0", "again")), Done)

    run(test())


def test_its_log_is_told_under_its_names(tmp_path: Path) -> None:
    """Before it is up: what the builder of kernels has to say is of no use after."""

    async def test() -> None:
        async with running(tmp_path, note="building: 100%") as child:
            record, up = await told(child, is_up)
            assert isinstance(up, Up)
            assert record == Logged(name="tests.child", level=logging.WARNING, message="building: 100%")

    run(test())


def test_what_cannot_cross_fails_alone(tmp_path: Path) -> None:
    """In either direction; the rest of what is sent with it goes on."""

    async def test() -> None:
        async with running(tmp_path) as child:
            await told(child, is_up)
            child.submit([do(print, "a"), do("sleep 0", "b"), do("slip", "c"), do("sleep 0", "d")])  # type: ignore[arg-type]
            events = await told(child, lambda event: getattr(event, "command_id", None) == "d")
            by_id = {event.command_id: event for event in events if isinstance(event, Done | Failed)}
            for name in "ac":
                failed = by_id[name]
                assert isinstance(failed, Failed)
                assert (failed.failure.blame, failed.failure.kind) == ("server", "bug")
                assert "cannot cross" in failed.failure.message
            assert isinstance(by_id["b"], Done)
            assert isinstance(by_id["d"], Done)
            assert any(isinstance(one, Logged) and "an event cannot be told" in one.message for one in events)

    run(test())
