"""Work of workers that are not up: others do it, or it is refused; nothing waits for what never comes."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.server.pool.scripted import ACCOUNT, Several, create, drawn, forget, sample, settle, step

from cookhouse.engine.contract import (
    CanceledError,
    Create,
    Fetch,
    Logged,
    LoraSpec,
    NoMemoryError,
    Room,
    Sample,
    SampleOutput,
    Step,
)
from cookhouse.server.pool.worker_handle import WorkerHandle

pytestmark = pytest.mark.anyio
NO_PROCESS = OSError(12, "Cannot allocate memory")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cookhouse.server.pool.worker_handle._FIRST_PAUSE_SECONDS", 0.01)


def worker(several: Several, name: str) -> WorkerHandle:
    return next(worker for worker in several.pool.workers if worker.name == name)


async def both_down(several: Several) -> None:
    """Neither can be started again, for now."""
    for name in ("worker0", "worker1"):
        several.cannot_start[name] = NO_PROCESS
        await several.worker(name).lose()
    assert not any(one.is_up for one in several.pool.workers)


async def comes_up(several: Several, name: str) -> None:
    del several.cannot_start[name]
    while not worker(several, name).is_up:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await settle()


async def test_what_waits_for_one_that_is_down_is_done_by_the_first_that_is_up(tmp_path: Path) -> None:
    """Would catch a client that waits for ever for a worker which cannot be started, beside an idle one."""
    async with Several(tmp_path, workers=2) as several:
        await both_down(several)
        creating, stepping = several.pool.send(create("a")), several.pool.send(step("1", "a"))
        drawing = [several.pool.send(sample(f"s{index}")) for index in range(2)]
        await settle()
        await comes_up(several, "worker1")
        up = several.worker("worker1")
        assert up.ids(Create) == ["create a"]
        assert sorted(up.ids(Sample)) == ["s0", "s1"]
        await up.done("create a")
        await creating
        assert up.ids(Step) == ["1"]
        await up.done("1", {})
        for index, answer in enumerate(drawing):
            await up.done(f"s{index}", drawn(f"s{index}"))
            assert isinstance(await answer, SampleOutput)
        await stepping
        assert worker(several, "worker0").num_tokens == 0


async def test_what_is_forgotten_meanwhile_is_canceled(tmp_path: Path) -> None:
    """Would catch a sample that is drawn for nobody, since its end went with the worker that never came up."""
    async with Several(tmp_path, workers=2) as several:
        await both_down(several)
        drawing = several.pool.send(sample("s"))
        several.pool.forget(forget(command_ids=("s",)))
        with pytest.raises(CanceledError):
            await drawing
        await comes_up(several, "worker1")
        assert several.worker("worker1").ids(Sample) == []


async def test_what_all_that_run_refuse_is_refused(tmp_path: Path) -> None:
    """Would catch a creation, and a sample, that wait for a worker which cannot be started, without a word."""
    async with Several(tmp_path, workers=2) as several:
        several.cannot_start["worker0"] = NO_PROCESS
        await several.worker("worker0").lose()
        while worker(several, "worker0").life.failed_start is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        creating, drawing = several.pool.send(create("a")), several.pool.send(sample("s"))
        await settle()
        up = several.worker("worker1")
        await up.refuse("create a", "2 GiB too little")
        await up.refuse("s", "3 GiB too little")
        for answer, words in ((creating, "2 GiB"), (drawing, "3 GiB")):
            with pytest.raises(NoMemoryError, match=f"no worker has room: worker1: {words} too little"):
                await answer
        assert not several.pool._pending
        assert len(several.pool.placement._creations) == 0


async def test_a_model_that_was_refused_has_no_place(tmp_path: Path) -> None:
    """Would catch a worker that seems full of models which it refused, and one that is asked again and again."""
    async with Several(tmp_path, workers=2) as several:
        for _ in range(2):
            creating = several.pool.send(create("a"))
            await settle()
            for name in ("worker0", "worker1"):
                await several.worker(name).refuse("create a", "full")
            with pytest.raises(NoMemoryError, match="worker0: full; worker1: full"):
                await creating
            assert [len(several.pool.placement.models_of(one)) for one in several.pool.workers] == [0, 0]


async def test_a_sample_that_every_sampler_refuses_is_drawn_by_no_trainer(tmp_path: Path) -> None:
    """Would catch a sample that lands on a worker which only trains."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        drawing = several.pool.send(sample("s"))
        await settle()
        await several.worker("sampler1").refuse("s", "full")
        with pytest.raises(NoMemoryError, match="no worker has room: sampler1: full"):
            await drawing
        assert several.worker("trainer0").commands == []


async def test_a_new_worker_has_not_said_what_the_last_one_said(tmp_path: Path) -> None:
    """Would catch a refusal that outlives the worker that it is of."""
    async with Several(tmp_path, apart=(1, 2)) as several:
        drawing = several.pool.send(sample("s"))
        await settle()
        first, second = several.worker("sampler1"), several.worker("sampler2")
        await first.refuse("s", "full")
        await first.lose("killed")
        await several.worker("sampler2").refuse("s", "full as well")
        again = several.worker("sampler1")
        assert again is not first
        assert second.ids(Sample) == ["s"] == again.ids(Sample)
        await again.done("s", drawn("s"))
        await drawing


async def test_an_added_worker_that_cannot_be_made_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch one that is starting for ever, since its machine had no process left."""
    async with Several(tmp_path, workers=2) as several:
        several.cannot_start["worker2"] = NO_PROCESS
        several.supervisor.add()
        await settle()
        assert [one.name for one in several.pool.workers] == ["worker0", "worker1"]
    assert "worker2 could not be started: OSError: [Errno 12] Cannot allocate memory" in caplog.text


async def test_a_starting_worker_that_is_drained_and_fails_is_gone_once(tmp_path: Path) -> None:
    """Would catch a drain that fails in words of Python's, since its worker had failed before."""
    async with Several(tmp_path, workers=2) as several:
        several.cannot_start["worker2"] = NO_PROCESS
        plan = several.supervisor.add()
        leaving = several.supervisor.begin_drain(plan.name)
        await settle()
        await several.supervisor.drain(leaving, 0.2)
        assert [one.name for one in several.pool.workers] == ["worker0", "worker1"]


async def test_nothing_comes_between_the_count_of_models_and_the_leave(tmp_path: Path) -> None:
    """Would catch a model that is placed at a worker which was just found to have none, and is lost with it."""
    async with Several(tmp_path, workers=2) as several:
        leaving = several.supervisor.begin_drain("worker0")
        creating = several.pool.send(create("a"))
        await settle()
        assert several.worker("worker0").ids(Create) == []
        await several.worker("worker1").done("create a")
        await creating
        await several.supervisor.drain(leaving, 0.0)


async def test_names_stand_in_the_log_once_there_are_several(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch lines of the first worker that nobody can tell from those of one that was added beside it."""
    caplog.set_level(logging.WARNING, "tests.worker")
    record = Logged(name="tests.worker", level=logging.WARNING, message="low on memory")
    async with Several(tmp_path, workers=1) as several:
        several.worker("engine").tell(record)
        await settle()
        several.supervisor.add()
        await settle()
        several.worker("engine").tell(record)
        several.worker("worker1").tell(record)
        await settle()
    said = [text for name, _, text in caplog.record_tuples if name == "tests.worker"]
    assert said == ["low on memory", "engine: low on memory", "worker1: low on memory"]


async def test_weights_that_do_not_fit_are_fetched_there_once(tmp_path: Path) -> None:
    """Would catch a sampler without memory that is asked to fetch for each sample, or never again."""
    async with Several(tmp_path, apart=(1, 2)) as several:
        first, second = several.worker("sampler1"), several.worker("sampler2")
        for index in range(4):
            url = (tmp_path / f"w{index}").as_uri()
            several.pool.note_file(fetch(f"w{index}", url))
        for index in range(3):
            drawing = several.pool.send(sample(f"s{index}", f"w{index}"))
            await settle()
            if first.ids(Fetch) and not index:
                await first.refuse(first.ids(Fetch)[0], "full")
                await first.refuse("s0", "full")
            await second.done(second.ids(Fetch)[-1])
            await second.done(f"s{index}", drawn(f"s{index}"))
            await drawing
        assert (len(first.ids(Fetch)), len(second.ids(Fetch))) == (1, 3)
        first.tell(Room(free_bytes=2**31, base_models=("b",)))
        await settle()
        last = several.pool.send(sample("s3", "w3"))
        await settle()
        assert len(first.ids(Fetch)) == 2
        await first.done("s3", drawn("s3"))
        await last


def fetch(snapshot_id: str, url: str) -> Fetch:
    return Fetch(
        command_id="", account=ACCOUNT, snapshot_id=snapshot_id, base_model="b", lora=LoraSpec(rank=4), url=url
    )
