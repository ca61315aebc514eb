"""Commands of several workers behind one server: which of them is told what, and what becomes of one that ends."""

import asyncio
import itertools
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.server.pool.scripted import (
    ACCOUNT,
    Several,
    create,
    drawn,
    forget,
    publish,
    sample,
    save,
    settle,
    step,
    tokens,
)

from cookhouse.engine.contract import (
    Account,
    Amount,
    CanceledError,
    Create,
    Failure,
    Fetch,
    Forget,
    LoraSpec,
    NoMemoryError,
    Publish,
    Sample,
    SampleOutput,
    SaveSnapshot,
    Spent,
    Step,
)
from cookhouse.errors import InputError, ServiceError
from cookhouse.server.pool.life import LostState
from cookhouse.server.refusals import LostError
from cookhouse.server.storage.store.usage import Usage

pytestmark = pytest.mark.anyio


async def test_a_model_stays_where_it_was_made(tmp_path: Path) -> None:
    """Would catch a step that goes to a worker without the model, and models that all go to one worker."""
    async with Several(tmp_path, workers=2) as several:
        places = [await several.model(name) for name in ("a", "b")]
        assert sorted(places) == ["worker0", "worker1"]
        for index in range(4):
            for model_id in ("a", "b"):
                several.pool.send(step(f"{model_id}{index}", model_id))
        await settle()
        for place, model_id in zip(places, "ab", strict=True):
            assert several.worker(place).ids(Step) == [f"{model_id}{index}" for index in range(4)]


async def test_trainers_train_and_samplers_sample(tmp_path: Path) -> None:
    """Would catch a worker that is given what it is not there for."""
    async with Several(tmp_path, apart=(1, 2)) as several:
        assert await several.model("a") == "trainer0"
        for index in range(4):
            several.pool.send(sample(f"s{index}"))
        await settle()
        assert several.worker("trainer0").ids(Sample) == []
        assert [len(several.worker(name).ids(Sample)) for name in ("sampler1", "sampler2")] == [2, 2]


async def test_a_model_that_one_worker_has_no_room_for_is_tried_on_the_next(tmp_path: Path) -> None:
    """Would catch a refusal while another worker has room, and a command that overtakes its model's creation."""
    async with Several(tmp_path, workers=3) as several:
        creating, stepping = several.pool.send(create("a")), several.pool.send(step("1", "a"))
        await settle()
        assert several.worker("worker0").kinds == ["Create"]
        await several.worker("worker0").refuse("create a", "1 GiB too little")
        assert several.worker("worker1").kinds == ["Create"]
        assert several.worker("worker0").kinds == ["Create"]
        await several.worker("worker1").done("create a")
        await creating
        assert several.worker("worker1").kinds == ["Create", "Step"]
        await several.worker("worker1").done("1", {"grad_norm": 1.0})
        assert await stepping == {"grad_norm": 1.0}


async def test_the_last_refusal_says_what_each_worker_said(tmp_path: Path) -> None:
    """Would catch a refusal that names one worker alone, and commands behind it that wait for ever."""
    async with Several(tmp_path, workers=2) as several:
        creating, stepping = several.pool.send(create("a")), several.pool.send(step("1", "a"))
        await settle()
        await several.worker("worker0").refuse("create a", "1 GiB too little")
        await several.worker("worker1").refuse("create a", "2 GiB too little")
        with pytest.raises(
            NoMemoryError, match=r"no worker has room: worker0: 1 GiB too little; worker1: 2 GiB too little"
        ):
            await creating
        behind = next(one for one in (several.worker("worker0"), several.worker("worker1")) if one.ids(Step))
        await behind.fail("1", Failure(blame="user", kind="input", message="unknown model"))
        with pytest.raises(InputError, match="unknown model"):
            await stepping


async def test_another_refusal_is_the_last_word(tmp_path: Path) -> None:
    """Would catch a bad request that every worker is asked."""
    async with Several(tmp_path, workers=2) as several:
        creating = several.pool.send(create("a"))
        await settle()
        await several.worker("worker0").fail("create a", Failure(blame="user", kind="input", message="a bad rank"))
        with pytest.raises(InputError, match="a bad rank"):
            await creating
        assert several.worker("worker1").commands == []


async def test_a_sample_that_one_worker_has_no_room_for_is_drawn_by_another(tmp_path: Path) -> None:
    """Would catch a base model that fits on one worker alone and is refused there too, and a sample asked for ever."""
    async with Several(tmp_path, workers=2) as several:
        drawing, refused = several.pool.send(sample("1")), several.pool.send(sample("2"))
        await settle()
        first, second = several.worker("worker0"), several.worker("worker1")
        await first.refuse("1", "1 GiB too little")
        assert "1" in second.ids(Sample)
        await second.done("1", SampleOutput(request_id="1"))
        assert isinstance(await drawing, SampleOutput)
        names = [first, second] if "2" in first.ids(Sample) else [second, first]
        await names[0].refuse("2", "full")
        await names[1].refuse("2", "full as well")
        with pytest.raises(NoMemoryError, match=r"no worker has room: worker.: full; worker.: full as well"):
            await refused


async def test_a_model_that_looks_for_a_place_can_be_forgotten(tmp_path: Path) -> None:
    """Would catch commands that wait for ever behind a model whose session has ended."""
    async with Several(tmp_path, workers=2) as several:
        creating, stepping = several.pool.send(create("a")), several.pool.send(step("1", "a"))
        await settle()
        several.pool.forget(forget(model_ids=("a",)))
        with pytest.raises(CanceledError):
            await stepping
        await several.worker("worker0").fail("create a", Failure(blame="user", kind="canceled", message="canceled"))
        with pytest.raises(CanceledError):
            await creating
        assert several.worker("worker0").kinds == ["Create", "Forget"]


async def test_samples_go_where_their_weights_and_prompt_are(tmp_path: Path) -> None:
    """Would catch weights that are moved without need, and a prompt that each worker computes."""
    async with Several(tmp_path, workers=2) as several:
        place = await several.model("a")
        await several.publish("a", "w")
        prompt = list(range(500))
        for index in range(3):
            several.pool.send(sample(f"s{index}", "w", prompt=prompt))
        await settle()
        assert several.worker(place).ids(Sample) == ["s0", "s1", "s2"]
        several.pool.send(sample("base", prompt=prompt))
        await settle()
        other = "worker1" if place == "worker0" else "worker0"
        assert several.worker(other).ids(Sample) == ["base"]


async def test_a_busy_worker_writes_weights_that_another_reads(tmp_path: Path) -> None:
    """Would catch a sample before its weights, weights that are written for each sample, and an idle worker."""
    async with Several(tmp_path, workers=2) as several:
        place = await several.model("a")
        holder = several.worker(place)
        other = several.worker("worker1" if place == "worker0" else "worker0")
        await several.publish("a", "w")
        answers = [several.pool.send(sample(f"s{index}", "w", max_tokens=3000)) for index in range(3)]
        await settle()
        assert holder.kinds == ["Create", "Publish", "Sample", "SaveSnapshot"]
        assert other.kinds == []
        waiting = [index for index in range(3) if f"s{index}" not in holder.ids(Sample)]
        await holder.written()
        assert other.kinds[:2] == ["Fetch", "Sample"]
        assert "Fetch" not in other.kinds[1:]
        assert len(other.ids(Sample) + holder.ids(Sample)) == 3
        assert waiting
        for index, answer in enumerate(answers):
            for worker in (holder, other):
                if f"s{index}" in worker.ids(Sample):
                    await worker.done(f"s{index}", drawn(f"s{index}"))
            assert isinstance(await answer, SampleOutput)


async def test_a_sampler_reads_what_a_trainer_publishes(tmp_path: Path) -> None:
    """Would catch a sampler that is asked for weights which it never read, or reads them before they are written."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        await several.model("a")
        trainer, sampler = several.worker("trainer0"), several.worker("sampler1")
        publishing = several.pool.send(publish("a", "w"))
        first, second = (several.pool.send(sample(name, "w")) for name in ("1", "2"))
        await settle()
        assert trainer.kinds == ["Create", "Publish", "SaveSnapshot"]
        assert sampler.kinds == []
        await trainer.done("publish w")
        await publishing
        await trainer.written()
        assert sampler.kinds == ["Fetch", "Sample", "Sample"]
        for name, answer in (("1", first), ("2", second)):
            await sampler.done(name, drawn(name))
            await answer
        later = several.pool.send(sample("3", "w"))
        await settle()
        assert sampler.kinds == ["Fetch", "Sample", "Sample", "Sample"]
        await sampler.lose()
        again = several.worker("sampler1")
        assert again.kinds == ["Fetch", "Sample"]
        await again.done("3", drawn("3"))
        await later


async def test_weights_that_cannot_be_written_are_not_gone(tmp_path: Path) -> None:
    """Would catch a disk that is full for a moment, and takes weights from their clients for ever."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        await several.model("a")
        await several.publish("a", "w")
        trainer, sampler = several.worker("trainer0"), several.worker("sampler1")
        failing = several.pool.send(sample("1", "w"))
        await settle()
        (save,) = trainer.ids(SaveSnapshot)
        await trainer.fail(save, Failure(blame="server", kind="disk", message="No space left on device"))
        with pytest.raises(Exception, match="No space left on device"):
            await failing
        trainer.commands = []
        later = several.pool.send(sample("2", "w"))
        await settle()
        await trainer.written()
        await sampler.done("2", drawn("2"))
        await later


async def test_weights_that_were_dropped_are_gone_in_words(tmp_path: Path) -> None:
    """Would catch a sample that is sent round for ever, and a name that no client knows."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        await several.model("a")
        await several.publish("a", "w")
        failing = several.pool.send(sample("1", "w"))
        await settle()
        trainer = several.worker("trainer0")
        (save,) = trainer.ids(SaveSnapshot)
        await trainer.fail(save, Failure(blame="user", kind="input", message="newer ones have been published"))
        with pytest.raises(LostError, match="gone: newer ones have been published"):
            await failing
        with pytest.raises(LostError, match="made room for newer ones; publish them again"):
            await several.pool.send(sample("2", "w"))
        assert several.worker("sampler1").commands == []


async def test_a_lost_worker_takes_what_it_held_alone(tmp_path: Path) -> None:
    """Would catch a loss that all tenants see, and a sample that is lost although any worker could draw it."""
    gone: list[LostState] = []
    async with Several(tmp_path, workers=2, on_lost=gone.append) as several:
        places = {name: await several.model(name) for name in ("a", "b")}
        for name in ("a", "b"):
            await several.publish(name, f"w{name}")
        told: list[SampleOutput] = []
        steps = {name: several.pool.send(step(f"step {name}", name)) for name in ("a", "b")}
        of_weights = {name: several.pool.send(sample(f"of w{name}", f"w{name}")) for name in ("a", "b")}
        of_base = [several.pool.send(sample(f"base{index}"), told.append) for index in range(2)]
        await settle()
        lost, other = several.worker(places["a"]), several.worker(places["b"])
        streamed = next(name for name in lost.ids(Sample) if name.startswith("base"))
        lost.tell(tokens(streamed, 5), tokens(streamed, 6))
        await lost.lose("killed")
        assert [(one.reason, list(one.model_ids), list(one.snapshot_ids)) for one in gone] == [
            ("killed", ["a"], ["wa"])
        ]
        for answer in (steps["a"], of_weights["a"]):
            with pytest.raises(LostError, match="killed"):
                await answer
        assert {"step b", "of wb", "base0", "base1"} <= {command.command_id for command in other.commands}
        other.tell(tokens(streamed, 5), tokens(streamed, 6), tokens(streamed, 7))
        await other.done("step b", {})
        for name in ("of wb", "base0", "base1"):
            await other.done(name, drawn(name))
        await asyncio.gather(steps["b"], of_weights["b"], *of_base)
        assert [one.sequences[0].tokens_T.tolist() for one in told] == [[5], [6], [7]]


async def test_each_token_of_several_samples_is_told_once_though_they_step_apart(tmp_path: Path) -> None:
    """Would catch tokens that come twice, or never, where another worker begins the samples of one request at other
    steps than the one that was lost.
    """
    told: list[SampleOutput] = []
    async with Several(tmp_path, workers=2) as several:
        drawing = several.pool.send(sample("1"), told.append)
        await settle()
        place = "worker0" if several.worker("worker0").commands else "worker1"
        lost, other = several.worker(place), several.worker("worker1" if place == "worker0" else "worker0")
        lost.tell(tokens("1", 10, 20, 30), tokens("1", 11, 21, 31))
        await lost.lose("killed")
        for step_of_all in ((10, None, None), (11, 20, None), (12, 21, 30), (13, 22, 31), (None, 23, 32)):
            other.tell(tokens("1", *step_of_all))
        await other.done("1", drawn("1"))
        await drawing
    by_sequence = [[one.sequences[index].tokens_T.tolist() for one in told] for index in range(3)]
    assert [list(itertools.chain(*newest)) for newest in by_sequence] == [
        [10, 11, 12, 13],
        [20, 21, 22, 23],
        [30, 31, 32],
    ]
    assert all(any(newest) for newest in zip(*by_sequence, strict=True)), "a step that tells nothing new is not told"


async def test_weights_of_a_lost_worker_are_drawn_where_they_were_read(tmp_path: Path) -> None:
    """Would catch weights that count as gone while another worker has them, or are published over themselves."""
    gone: list[LostState] = []
    async with Several(tmp_path, workers=2, on_lost=gone.append) as several:
        place = await several.model("a")
        holder = several.worker(place)
        other = several.worker("worker1" if place == "worker0" else "worker0")
        await several.publish("a", "w")
        answers = [several.pool.send(sample(f"s{index}", "w", max_tokens=3000)) for index in range(2)]
        await settle()
        await holder.written()
        await holder.lose()
        assert list(gone[0].snapshot_ids) == []
        assert sorted(other.ids(Sample)) == ["s0", "s1"]
        assert await several.model("another") == place
        creating = several.pool.send(create("a"))
        publishing = several.pool.send(publish("a", "w"))
        await settle()
        assert other.kinds[-1] == "Create"
        await other.done("create a")
        await creating
        await publishing
        assert other.ids(Publish) == []
        for index, answer in enumerate(answers):
            await other.done(f"s{index}", drawn(f"s{index}"))
            await answer


async def test_a_holder_that_is_lost_while_it_writes_fails_what_waits(tmp_path: Path) -> None:
    """Would catch a sample that waits for ever for weights which went with their worker."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        await several.model("a")
        await several.publish("a", "w")
        waiting = several.pool.send(sample("1", "w"))
        await settle()
        await several.worker("trainer0").lose("killed")
        with pytest.raises(LostError, match="killed"):
            await waiting
        assert len(several.pool.transfers._writing) == 0


async def test_what_was_written_makes_room_where_its_origin_still_has_it(tmp_path: Path) -> None:
    """Would catch files that fill the disk, weights that go while they are sampled, and a copy without its file."""
    async with Several(tmp_path, apart=(1, 1), max_file_bytes=25) as several:
        await several.model("a")
        trainer, sampler = several.worker("trainer0"), several.worker("sampler1")
        answers = {}
        for name in ("w1", "w2", "w3"):
            await several.publish("a", name)
            answers[name] = several.pool.send(sample(f"of {name}", name))
            await settle()
            await trainer.written()
        moves = tmp_path / "moves"
        assert sorted(path.stem for path in moves.iterdir()) == ["w1", "w2", "w3"]  # all are being sampled
        for name in ("w1", "w2", "w3"):
            await sampler.done(f"of {name}", drawn(f"of {name}"))
        await several.publish("a", "w4")
        several.pool.send(sample("of w4", "w4"))
        await settle()
        await trainer.written()
        assert sorted(path.stem for path in moves.iterdir()) == ["w3", "w4"]
        forgotten = [one for one in sampler.commands if isinstance(one, Forget)]
        assert [one.snapshot_ids for one in forgotten] == [("w1",), ("w2",)]
        several.pool.send(sample("of w1 again", "w1"))
        await settle()
        await trainer.written()
        assert sampler.kinds[-2:] == ["Fetch", "Sample"]


async def test_forgetting_reaches_everywhere(tmp_path: Path) -> None:
    """Would catch weights that stay with a worker that read them, their file, and a sample that nobody waits for."""
    async with Several(tmp_path, apart=(1, 2)) as several:
        await several.model("a")
        await several.publish("a", "w")
        trainer = several.worker("trainer0")
        first, waiting = several.pool.send(sample("1", "w")), several.pool.send(sample("2", "w"))
        await settle()
        several.pool.forget(forget(command_ids=("2",)))
        with pytest.raises(CanceledError):
            await waiting
        await trainer.written()
        sampler = next(one for name in ("sampler1", "sampler2") if (one := several.worker(name)).commands)
        assert sampler.ids(Sample) == ["1"]
        several.pool.forget(forget(command_ids=("1",), snapshot_ids=("w",), model_ids=("a",)))
        await settle()
        assert trainer.kinds[-1] == "Forget"
        assert sampler.kinds[-1] == "Forget"
        await sampler.fail("1", Failure(blame="user", kind="canceled", message="canceled"))
        with pytest.raises(CanceledError):
            await first
        assert list((tmp_path / "moves").iterdir()) == []
        assert not several.pool.weights.is_held("w")
        workers = several.pool.workers
        assert not any(
            (worker.memory.snapshots, worker.memory.fetched, worker.memory.evicted) != (set(), set(), set())
            for worker in workers
        )


async def test_a_fetch_that_is_canceled_with_its_weights_is_forgotten(tmp_path: Path) -> None:
    """Would catch a name that is kept for ever of each weights that went while they were read."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        await several.model("a")
        await several.publish("a", "w")
        drawing = several.pool.send(sample("1", "w"))
        await settle()
        await several.worker("trainer0").written()
        sampler = several.worker("sampler1")
        several.pool.forget(forget(command_ids=("1",), snapshot_ids=("w",)))
        for command_id in (*sampler.ids(Fetch), "1"):
            await sampler.fail(command_id, Failure(blame="user", kind="canceled", message="canceled"))
        with pytest.raises(CanceledError):
            await drawing
        assert not any(worker.memory.evicted for worker in several.pool.workers)


async def test_weights_that_are_forgotten_while_they_are_written_leave_no_file(tmp_path: Path) -> None:
    """Would catch a file that nobody deletes."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        await several.model("a")
        await several.publish("a", "w")
        waiting = several.pool.send(sample("1", "w"))
        await settle()
        several.pool.forget(forget(snapshot_ids=("w",)))
        await several.worker("trainer0").written()
        assert list((tmp_path / "moves").iterdir()) == []
        assert several.worker("sampler1").ids(Fetch) == []
        waiting.cancel()


async def test_a_worker_is_drained(tmp_path: Path) -> None:
    """Would catch samples that a drain cuts off, models that go without a word, and weights that go with them."""
    gone: list[LostState] = []
    async with Several(tmp_path, workers=2, on_lost=gone.append) as several:
        place = await several.model("a")
        leaving = several.worker(place)
        other_name = "worker1" if place == "worker0" else "worker0"
        other = several.worker(other_name)
        await several.publish("a", "w")
        drawing, stepping = several.pool.send(sample("1", "w")), several.pool.send(step("s", "a"))
        await settle()
        draining = asyncio.ensure_future(several.drain(place, 30.0))
        await settle()
        assert leaving.kinds[-1] == "SaveSnapshot"
        await leaving.written()
        with pytest.raises(LostError, match="has left"):
            await asyncio.wait_for(stepping, 5.0)
        assert [(list(one.model_ids), list(one.snapshot_ids), one.is_loss) for one in gone] == [(["a"], [], False)]
        assert [one.model_ids for one in leaving.commands if isinstance(one, Forget)] == [("a",)]
        later = several.pool.send(sample("2", "w"))
        await settle()
        assert other.kinds == ["Fetch", "Sample"]
        assert await several.model("b") == other_name
        await leaving.done("1", drawn("1"))
        await drawing
        await asyncio.wait_for(draining, 5.0)
        assert [worker.name for worker in several.pool.workers] == [other_name]
        await other.done("2", drawn("2"))
        await later


async def test_what_a_drained_worker_has_not_drawn_in_time_is_drawn_by_others(tmp_path: Path) -> None:
    """Would catch a sample that ends with its worker, and a drain that waits for ever for weights."""
    async with Several(tmp_path, workers=2) as several:
        drawing = several.pool.send(sample("1"))
        await settle()
        place = "worker0" if several.worker("worker0").commands else "worker1"
        other = several.worker("worker1" if place == "worker0" else "worker0")
        await asyncio.wait_for(several.drain(place, 0.0), 5.0)
        await settle()
        assert other.ids(Sample) == ["1"]
        await other.done("1", drawn("1"))
        await drawing


async def test_two_workers_that_leave_at_once_lose_nothing(tmp_path: Path) -> None:
    """Would catch weights that each of them leaves to the other."""
    async with Several(tmp_path, workers=3) as several:
        place = await several.model("a")
        await several.publish("a", "w")
        for index in range(2):
            several.pool.send(sample(f"s{index}", "w", max_tokens=3000))
        await settle()
        await several.worker(place).written()
        fetched = next(
            worker.name for worker in several.pool.workers if worker.name != place and worker.memory.snapshots
        )
        several.pool.weights.files.drop("w")  # type: ignore[union-attr]
        draining = [asyncio.ensure_future(several.drain(name, 0.3)) for name in (place, fetched)]
        await settle()
        writer = next(one for name in (place, fetched) if (one := several.worker(name)).ids(SaveSnapshot))
        await writer.written()
        await asyncio.wait_for(asyncio.gather(*draining), 10.0)
        (stayed,) = several.pool.workers
        await settle()
        assert several.worker(stayed.name).kinds[0] == "Fetch"
        assert sorted(several.worker(stayed.name).ids(Sample)) == ["s0", "s1"]


@pytest.mark.parametrize(
    ("shape", "name"), [({"workers": 1}, "engine"), ({"apart": (1, 2)}, "trainer0"), ({"apart": (2, 1)}, "sampler2")]
)
async def test_the_last_of_its_kind_does_not_leave(tmp_path: Path, shape: dict[str, Any], name: str) -> None:
    """Would catch a server that cannot train, or cannot sample, from then on."""
    async with Several(tmp_path, **shape) as several:
        with pytest.raises(InputError, match=f"{name} is the last worker of its kind; add another of that kind first"):
            await several.drain(name, 1.0)
        with pytest.raises(InputError, match="there is no worker 'nobody' that could leave; there are"):
            await several.drain("nobody", 1.0)
        assert several.pool.is_up


async def test_nobody_leaves_before_who_takes_its_place_is_up(tmp_path: Path) -> None:
    """Would catch a server without any worker, where one was added for another that is drained, and cannot start."""
    async with Several(tmp_path, workers=1) as several:
        plan = several.supervisor.add()
        with pytest.raises(InputError, match="engine is needed until another of its kind is up: worker1 is being star"):
            await several.drain("engine", 0.0)
        assert several.pool.is_up
        await settle()
        await asyncio.wait_for(several.drain("engine", 0.0), 5.0)
        assert await several.model("a") == plan.name


async def test_a_disk_that_fails_once_does_not_keep_a_worker_from_weights(tmp_path: Path) -> None:
    """Would catch weights that are never read again, though the disk is back."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        await several.model("a")
        await several.publish("a", "w")
        sampler = several.worker("sampler1")
        failing = several.pool.send(sample("1", "w"))
        await settle()
        await several.worker("trainer0").written()
        fault = Failure(blame="server", kind="disk", message="Input/output error")
        await sampler.fail(sampler.ids(Fetch)[0], fault)
        await sampler.fail("1", fault)
        with pytest.raises(ServiceError, match="Input/output error"):
            await failing
        later = several.pool.send(sample("2", "w"))
        await settle()
        assert sampler.kinds == ["Fetch", "Sample", "Fetch", "Sample"]
        await sampler.done("2", drawn("2"))
        await later


async def test_weights_of_a_worker_that_has_left_are_needed(tmp_path: Path) -> None:
    """Would catch the only copy of weights that makes room since a worker that is gone is said to have them."""
    async with Several(tmp_path, workers=2) as several:
        place = await several.model("a")
        await several.publish("a", "w")
        draining = asyncio.ensure_future(several.drain(place, 5.0))
        await settle()
        await several.worker(place).written()
        await asyncio.wait_for(draining, 5.0)
        assert several.pool.weights.is_needed("w")


async def test_a_worker_that_leaves_writes_the_newest_weights_last_and_keeps_them(tmp_path: Path) -> None:
    """Would catch weights that make room for older ones as soon as they are written, since the worker that is about to
    end still has them.
    """
    names = [f"w{index}" for index in range(8)]
    async with Several(tmp_path, workers=2, max_file_bytes=15) as several:
        place = await several.model("a")
        for name in names:
            await several.publish("a", name)
        assert await several.model("b") != place
        leaving = several.worker(place)
        draining = asyncio.ensure_future(several.drain(place, 30.0))
        await settle()
        saves = [command.snapshot_id for command in leaving.commands if isinstance(command, SaveSnapshot)]
        assert saves == names
        newest = leaving.commands.pop()  # is told first
        leaving.commands.insert(0, newest)
        for _ in names:
            await leaving.written()
        await asyncio.wait_for(draining, 5.0)
        assert several.pool.weights.is_held(names[-1])


async def test_what_a_worker_used_counts_where_it_answers(tmp_path: Path) -> None:
    """Would catch a sample that is paid for at each worker that began it, also by one that leaves and goes on."""
    async with Several(tmp_path, workers=2) as several:
        drawing = several.pool.send(sample("1"))
        await settle()
        place = "worker0" if several.worker("worker0").commands else "worker1"
        lost, other = several.worker(place), several.worker("worker1" if place == "worker0" else "worker0")
        lost.tell(Spent(amounts=(Amount(ACCOUNT, "engine_seconds", 5.0, "1"),)))
        await lost.lose("killed")
        other.tell(Spent(amounts=(Amount(ACCOUNT, "engine_seconds", 2.0, "1"),)))
        several.worker(place).tell(Spent(amounts=(Amount(ACCOUNT, "engine_seconds", 7.0, "1"),)))
        await settle()
        assert several.pool._meter.take() == {}
        await other.done("1", drawn("1"))
        await drawing
        assert several.pool._meter.take() == {ACCOUNT: Usage(engine_seconds=2.0)}


async def test_a_worker_that_is_added_takes_its_part(tmp_path: Path) -> None:
    """Would catch one that is never given anything, and one that has the name of another."""
    async with Several(tmp_path, workers=2) as several:
        for name in ("a", "b"):
            await several.model(name)
        await asyncio.wait_for(several.drain("worker1", 0.0), 5.0)
        plan = several.supervisor.add()
        assert (plan.name, plan.part, plan.num_sharing) == ("worker2", 1, 2)
        await settle()
        assert await several.model("c") == "worker2"


async def test_a_worker_that_leaves_before_it_was_up_is_gone(tmp_path: Path) -> None:
    """Would catch one that comes back after it was closed, and an error that nobody sees."""
    async with Several(tmp_path, workers=2) as several:
        plan = several.supervisor.add()
        await asyncio.wait_for(several.drain(plan.name, 0.0), 5.0)
        await settle()
        assert [worker.name for worker in several.pool.workers] == ["worker0", "worker1"]


async def test_a_worker_that_is_lost_while_it_leaves_is_not_made_again(tmp_path: Path) -> None:
    """Would catch a process that nobody asked for, and samples that wait for it."""
    async with Several(tmp_path, workers=2) as several:
        drawing = several.pool.send(sample("1"))
        await settle()
        place = "worker0" if several.worker("worker0").commands else "worker1"
        leaving, other = several.worker(place), several.worker("worker1" if place == "worker0" else "worker0")
        draining = asyncio.ensure_future(several.drain(place, 30.0))
        await settle()
        await leaving.lose("killed")
        await asyncio.wait_for(draining, 5.0)
        assert several.worker(place) is leaving
        assert other.ids(Sample) == ["1"]
        await other.done("1", drawn("1"))
        await drawing


def begin_to_write(url: str) -> list[Path]:
    """What a worker has on the disk in the midst of a write, and, should it go on, at its end."""
    folder = Path(url.removeprefix("file://"))
    paths = [folder, folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")]
    for path in paths:
        path.mkdir(parents=True)
        (path / "weights").touch()
    return paths


async def test_a_save_under_way_stays_with_a_worker_that_is_drained(tmp_path: Path) -> None:
    """Would catch a save that fails, is deleted before it is there, and then comes to be there for ever."""
    async with Several(tmp_path, workers=2) as several:
        place = await several.model("a")
        leaving = several.worker(place)
        saving = several.pool.send(save("1", "a", (tmp_path / "1").as_uri()))
        canceled = several.pool.send(save("2", "a", (tmp_path / "2").as_uri()))
        await settle()
        draining = asyncio.ensure_future(several.drain(place, 30.0))
        await settle()
        assert not saving.done()
        await leaving.fail("2", Failure(blame="user", kind="canceled", message="its model is gone"))
        with pytest.raises(LostError, match="has left"):
            await canceled
        await leaving.done("1", {"written": 1.0})
        assert await saving == {"written": 1.0}
        await asyncio.wait_for(draining, 5.0)


async def test_what_is_under_way_of_a_model_that_moves_is_for_the_next_worker(tmp_path: Path) -> None:
    """Would catch a step that is answered by a worker that has the model no more, or a save that ends as canceled."""
    gone: list[LostState] = []
    async with Several(tmp_path, workers=2, on_lost=gone.append) as several:
        first, second = several.worker("worker0"), several.worker("worker1")
        for name in ("a", "b", "c"):
            await several.model(name)
        assert [len(several.pool.placement.models_of(worker)) for worker in several.pool.workers] == [2, 1]
        several.pool.forget(forget(model_ids=("b",)))
        stepping = several.pool.send(step("step", "a"))
        saving = several.pool.send(save("save", "a", (tmp_path / "1").as_uri()))
        await settle()
        several.supervisor.balance("a", 1)
        with pytest.raises(LostError, match="it moves to worker1"):
            await stepping
        await settle()
        assert [one.model_ids for one in gone] == [["a"]]
        assert first.commands[-1] == Forget(command_id="", account=Account("", ""), model_ids=("a",))
        await first.fail("save", Failure(blame="user", kind="canceled", message="its model is gone"))
        with pytest.raises(LostError, match="a has moved to another worker"):
            await saving
        several.pool.send(replace(create("a"), command_id="again"))
        await settle()
        assert second.ids(Create)[-1] == "again"


async def test_a_model_does_not_move_while_it_publishes(tmp_path: Path) -> None:
    """Would catch samples that wait for weights which the worker was told not to publish."""
    async with Several(tmp_path, workers=2) as several:
        for name in ("a", "b", "c"):
            await several.model(name)
        several.pool.forget(forget(model_ids=("b",)))
        several.pool.send(publish("a", "w"))
        several.supervisor.balance("a", 1)
        assert "a" in several.pool.placement.models_of(several.pool.workers[0])
        await settle()
        await several.worker("worker0").done("publish w")
        several.supervisor.balance("a", 1)
        assert "a" not in several.pool.placement.models_of(several.pool.workers[0])


async def test_a_model_that_trains_all_weights_does_not_move(tmp_path: Path) -> None:
    """Would catch a model that ends since it comes to a worker which trains all weights of another."""
    async with Several(tmp_path, workers=2) as several:
        first = several.worker("worker0")
        several.pool.send(replace(create("a"), lora=LoraSpec(rank=0)))
        await settle()
        await first.done("create a")
        for name in ("b", "c"):
            await several.model(name)
        several.pool.forget(forget(model_ids=("b",)))
        several.supervisor.balance("a", 1)
        several.supervisor.stop_balancing()
        several.supervisor.balance("c", 1)
        assert several.pool.placement.models_of(several.pool.workers[0]) == ["a", "c"]


async def test_a_model_that_cannot_be_loaded_where_it_moves_returns_and_stays(tmp_path: Path) -> None:
    """Would catch a model that ends since it was moved, and one that is moved again and again."""
    async with Several(tmp_path, workers=2) as several:
        for name in ("a", "b", "c"):
            await several.model(name)
        several.pool.forget(forget(model_ids=("b",)))
        several.supervisor.balance("a", 1)
        several.pool.send(replace(create("a"), command_id="again"))
        await settle()
        assert several.worker("worker1").ids(Create)[-1] == "again"
        no_files = Failure(blame="user", kind="input", message="there are no such files here")
        await several.worker("worker1").fail("again", no_files)
        assert several.worker("worker0").ids(Create)[-1] == "again"
        await several.worker("worker0").done("again")
        several.supervisor.balance("a", 1)
        assert several.pool.placement.models_of(several.pool.workers[0]) == ["c", "a"]


async def test_weights_of_a_model_that_has_moved_are_at_one_worker(tmp_path: Path) -> None:
    """Would catch a worker that for ever has the newest weights of models that it trains no more, and samples of
    different weights under one name.
    """
    async with Several(tmp_path, workers=2) as several:
        for name in ("a", "b", "c"):
            await several.model(name)
        several.pool.forget(forget(model_ids=("b",)))
        await several.publish("a", "w")
        several.supervisor.balance("a", 1)
        several.pool.send(replace(create("a"), command_id="again"))
        await settle()
        second = several.worker("worker1")
        await second.done("again")
        several.pool.send(replace(publish("a", "w"), command_id="replayed"))
        await settle()
        assert second.ids(Publish) == ["replayed"]
        assert several.worker("worker0").commands[-1] == forget(snapshot_ids=("w",))
        assert [sorted(worker.memory.snapshots) for worker in several.pool.workers] == [[], ["w"]]


async def test_samples_behind_a_publication_leave_with_it(tmp_path: Path) -> None:
    """Would catch a sample that is refused since its weights were to be published by a worker that is drained."""
    async with Several(tmp_path, workers=2) as several:
        assert await several.model("a") == "worker0"
        leaving, other = several.worker("worker0"), several.worker("worker1")
        several.pool.send(publish("a", "w")).add_done_callback(lambda done: done.exception())
        answer = several.pool.send(sample("s", "w"))
        await settle()
        assert leaving.ids(Sample) == ["s"]
        several.pool.workers[1].memory.snapshots.add("w")  # as one that has fetched them before
        draining = asyncio.ensure_future(several.drain("worker0", 30.0))
        await settle()
        assert other.ids(Sample) == ["s"]
        await other.done("s", drawn("s"))
        assert await answer == drawn("s")
        await draining


async def test_what_a_drained_worker_has_not_written_in_time_is_deleted(tmp_path: Path) -> None:
    """Would catch folders that come to be there once they have been given up, and a worker's own, which stays."""
    async with Several(tmp_path, workers=2) as several:
        place = await several.model("a")
        (tmp_path / place / "snapshots" / "w").mkdir(parents=True)
        state, other = (tmp_path / "states" / uuid.uuid4().hex for _ in range(2))
        saving = several.pool.send(save("1", "a", state.as_uri()))
        await settle()
        left = begin_to_write(state.as_uri())
        others = begin_to_write(other.as_uri())
        await asyncio.wait_for(several.drain(place, 0.0), 5.0)
        with pytest.raises(LostError, match="has left"):
            await saving
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in others), "which this worker did not write"
        assert not (tmp_path / place).exists()


async def test_what_a_lost_worker_was_writing_is_deleted(tmp_path: Path) -> None:
    """Would catch parts of files that stay until the server is started again, and others that go with them."""
    async with Several(tmp_path, workers=2) as several:
        place = await several.model("a")
        await several.publish("a", "w")
        holder = several.worker(place)
        saving = several.pool.send(save("1", "a", (tmp_path / "states" / "s").as_uri()))
        moving = [several.pool.send(sample(f"s{index}", "w", max_tokens=3000)) for index in range(2)]
        await settle()
        (move,) = [command for command in holder.commands if isinstance(command, SaveSnapshot)]
        left = [*begin_to_write((tmp_path / "states" / "s").as_uri()), *begin_to_write(move.url)]
        await holder.lose("killed")
        with pytest.raises(LostError, match="killed"):
            await saving
        while any(path.exists() for path in left):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for each in moving:
            each.cancel()


async def test_a_worker_that_cannot_be_added_leaves_no_folder(tmp_path: Path) -> None:
    """Would catch what one whose start failed has made, under a name that no other will have."""
    async with Several(tmp_path, workers=2) as several:
        plan = several.supervisor.add()
        (tmp_path / plan.name).mkdir()
        await asyncio.wait_for(several.drain("worker1", 0.0), 5.0)
        several.cannot_start["worker3"] = ServiceError("no memory")
        failing = several.supervisor.add()
        (tmp_path / failing.name).mkdir()
        while (tmp_path / failing.name).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert failing.name not in [worker.name for worker in several.pool.workers]
        assert (tmp_path / plan.name).exists()


async def test_calls_are_closed_while_weights_move(tmp_path: Path) -> None:
    """Would catch an end that waits for what no worker writes any more."""
    async with Several(tmp_path, workers=2) as several:
        place = await several.model("a")
        await several.publish("a", "w")
        draining = asyncio.ensure_future(several.drain(place, 0.1))
        await settle()
        assert len(several.pool.transfers._writing) == 1
    await asyncio.wait_for(draining, 5.0)


async def test_one_worker_that_is_down_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch new models that wait for a worker which cannot be started, beside one that runs."""
    monkeypatch.setattr("cookhouse.server.pool.worker_handle._FIRST_PAUSE_SECONDS", 30.0)
    async with Several(tmp_path, workers=2) as several:
        for _ in range(2):
            await several.worker("worker0").lose()
        assert not next(worker for worker in several.pool.workers if worker.name == "worker0").is_up
        assert several.pool.is_up
        assert [await several.model(name) for name in ("a", "b")] == ["worker1", "worker1"]
        assert several.worker("worker1").ids(Create) == ["create a", "create b"]


DAMAGED = Failure(blame="server", kind="damaged", message="a file has changed")


async def test_weights_that_are_damaged_on_their_way_are_written_again(tmp_path: Path) -> None:
    """Would catch a sample that fails while another worker holds its weights, and one that is sent round for ever."""
    async with Several(tmp_path, apart=(1, 1)) as several:
        await several.model("a")
        await several.publish("a", "w")
        trainer, sampler = several.worker("trainer0"), several.worker("sampler1")
        answer = several.pool.send(sample("1", "w"))
        await settle()
        for _ in range(2):
            await trainer.written()
            [fetch] = sampler.ids(Fetch)
            sampler.commands.clear()
            await sampler.fail(fetch, DAMAGED)
            await sampler.fail("1", DAMAGED)
        with pytest.raises(InputError, match="a file has changed"):
            await answer


async def test_damaged_weights_that_nobody_else_has_are_told(tmp_path: Path) -> None:
    async with Several(tmp_path, workers=2) as several:
        several.pool.note_file(a_fetch("w", "file:///w"))
        answer = several.pool.send(sample("1", "w"))
        await settle()
        worker = next(one for one in map(several.worker, ("worker0", "worker1")) if one.commands)
        await worker.fail(worker.ids(Fetch)[0], DAMAGED)
        await worker.fail("1", DAMAGED)
        with pytest.raises(InputError, match="a file has changed"):
            await answer
        assert several.pool.weights.is_held("w")


def a_fetch(snapshot_id: str, url: str) -> Fetch:
    return Fetch(command_id="", account=ACCOUNT, snapshot_id=snapshot_id, base_model="b", lora=LoraSpec(), url=url)
