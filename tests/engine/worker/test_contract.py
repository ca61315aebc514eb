"""What every worker promises, whatever carries its commands and events."""

from dataclasses import replace
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import (
    Done,
    Failed,
    Fetch,
    Forget,
    Inspect,
    Load,
    Read,
    Room,
    Sample,
    Saved,
    Spent,
    Tokens,
    Up,
    WorkerStatus,
)
from cookhouse.engine.files.checksums import checksums
from tests.engine.worker.conftest import MakeWorker
from tests.engine.worker.driver import ALICE, BASE, BOB, LORA, Driver
from tests.engine.worker.engines import (
    BrokenPasses,
    BrokenSamples,
    EndlessSamples,
    LittleMemory,
    LittleRoom,
    SlowDisk,
    SlowEngine,
    SlowStart,
)


def forget(driver: Driver, **what: Any) -> Forget:
    return Forget(command_id=driver.new_id(), account=ALICE, **what)


def a_load(
    driver: Driver, model_id: str, url: str, *, with_optimizer: bool = True, with_gradient: bool = False
) -> Load:
    return Load(
        command_id=driver.new_id(),
        account=ALICE,
        model_id=model_id,
        base_model=BASE,
        lora=LORA,
        url=url,
        with_optimizer=with_optimizer,
        with_gradient=with_gradient,
    )


def a_fetch(driver: Driver, snapshot_id: str, url: str) -> Fetch:
    return Fetch(
        command_id=driver.new_id(), account=ALICE, snapshot_id=snapshot_id, base_model=BASE, lora=LORA, url=url
    )


def spent(driver: Driver, kind: str) -> dict[str, float]:
    """By owner."""
    totals: dict[str, float] = {}
    for event in driver.events:
        for amount in event.amounts if isinstance(event, Spent) else ():
            if amount.kind == kind:
                totals[amount.account.owner] = totals.get(amount.account.owner, 0) + amount.amount
    return totals


def test_it_says_first_that_it_is_up(worker: Driver) -> None:
    """Would catch a server that offers base models before it knows them."""
    up = worker.events[0]
    assert isinstance(up, Up)
    assert up.worker == "w1"
    assert [info.name for info in up.base_models] == [BASE]


def test_what_comes_before_the_engine_is_made_waits(make_worker: MakeWorker) -> None:
    """Would catch commands that are lost while a base model loads."""
    worker = make_worker(SlowStart)
    worker.done(worker.create("m"))


def test_commands_of_a_model_run_in_order(make_worker: MakeWorker) -> None:
    """Would catch a step that overtakes its pass: it would see no gradient."""
    worker = make_worker(SlowEngine)
    commands = [worker.create("m")]
    for _ in range(4):
        commands += [worker.a_pass("m"), worker.step("m")]  # type: ignore[list-item]
    worker.submit(*commands)
    worker.answer(commands[-1].command_id)
    assert worker.answered() == [command.command_id for command in commands]
    norms = [worker.answer(command.command_id).output["grad_norm"] for command in commands[2::2]]  # type: ignore[union-attr, index, call-overload]
    assert all(norm > 0 for norm in norms)


def test_each_command_is_answered_once(worker: Driver) -> None:
    """Would catch a future that nobody finishes, or one that is finished twice."""
    commands: list[Any] = []
    for name in "abc":
        commands += [worker.create(name), worker.a_pass(name), worker.a_pass(name, [99]), worker.step(name)]
        commands += [worker.sample(), worker.sample("none"), worker.publish(name, f"s{name}")]
    worker.submit(*commands)
    for command in commands:
        worker.answer(command.command_id)
    assert sorted(worker.answered()) == sorted(command.command_id for command in commands)


def test_a_failed_command_changes_nothing(worker: Driver) -> None:
    """Would catch a gradient or a model left behind by what was refused."""
    worker.done(worker.create("m"))
    worker.done(worker.create("other"))
    for model_id in ("m", "other"):
        worker.done(worker.a_pass(model_id))
    assert "outside the vocabulary" in worker.failure(worker.a_pass("m", [99]))
    assert "loss" in worker.failure(worker.a_pass("m", loss="unknown"))
    assert "already" in worker.failure(worker.create("m"))
    worker.failure(a_load(worker, "m", "file:///nowhere"))
    assert worker.done(worker.step("m")) == worker.done(worker.step("other"))
    assert "unknown model" in worker.failure(worker.publish("nobody", "s"))
    assert "unknown snapshot" in worker.failure(worker.sample("s"))


def test_failures_say_whose_fault_they_are(make_worker: MakeWorker) -> None:
    """Would catch a bug of the engine told to a tenant as theirs."""
    worker = make_worker(BrokenPasses)
    worker.done(worker.create("m"))
    mine, ours = worker.run(worker.a_pass("m", [99])), worker.run(worker.a_pass("m", [13]))
    assert isinstance(mine, Failed)
    assert isinstance(ours, Failed)
    assert (mine.failure.blame, mine.failure.kind) == ("user", "input")
    assert (ours.failure.blame, ours.failure.kind) == ("server", "bug")
    assert ours.failure.message == "RuntimeError: 13 is bad luck"
    assert "Traceback" in ours.failure.details
    worker.done(worker.a_pass("m"))


def test_passes_of_several_models_give_what_they_give_alone(worker: Driver) -> None:
    """Would catch answers handed to the wrong one of those that share a turn."""
    commands = []
    for index in range(8):
        worker.done(worker.create(f"m{index}", ALICE if index % 2 else BOB))
        commands.append(worker.a_pass(f"m{index}", [index], forward_only=True))
    worker.submit(*commands)
    together = [worker.answer(command.command_id) for command in commands]
    for index, answer in enumerate(together):
        alone: Any = worker.done(worker.a_pass(f"m{index}", [index], forward_only=True))
        assert isinstance(answer, Done)
        assert np.array_equal(answer.output.logprobs_D[0], alone.logprobs_D[0])  # type: ignore[union-attr]


def test_a_step_waits_for_at_most_two_turns_of_another_tenant(worker: Driver) -> None:
    """Would catch turns of models in place of tenants, by which a step waits for a hundred others."""
    for name, account in [*((f"m{index}", ALICE) for index in range(30)), ("mine", BOB)]:
        worker.done(worker.create(name, account))
    theirs = [command for index in range(30) for command in (worker.a_pass(f"m{index}"), worker.step(f"m{index}"))]
    mine = [worker.a_pass("mine", account=BOB), worker.step("mine", BOB)]
    last = worker.a_pass("mine", account=BOB)
    # Canceled as soon as it is taken in: from its answer on, all before it have come.
    worker.submit(*theirs, *mine, last, forget(worker, command_ids=(last.command_id,)))
    for command in (theirs[-1], mine[-1], last):
        worker.answer(command.command_id)
    answered = worker.answered()
    steps = {command.command_id for command in theirs[1::2]}
    meanwhile = answered[answered.index(last.command_id) : answered.index(mine[-1].command_id)]
    assert sum(name in steps for name in meanwhile) <= 2


def test_samples_are_drawn_from_what_was_published(worker: Driver) -> None:
    """Would catch a snapshot that follows its model, and one that is not there when its sample comes at once."""
    worker.done(worker.create("m"))
    worker.submit(worker.a_pass("m"), worker.step("m"))
    publish, sample = worker.publish("m", "first"), worker.sample("first", temperature=0)
    worker.submit(publish, sample)
    answer = worker.answer(sample.command_id)
    assert isinstance(answer, Done), answer
    first = answer.output.sequences[0].tokens_T.tolist()  # type: ignore[union-attr]
    for _ in range(20):
        worker.submit(worker.a_pass("m", [7, 7, 7]), worker.step("m"))
    worker.done(worker.publish("m", "second"))
    assert worker.tokens(worker.sample("first", temperature=0)) == first
    assert worker.tokens(worker.sample("second", temperature=0)) != first


def test_a_streamed_sample_tells_its_tokens_before_the_whole(worker: Driver) -> None:
    command = worker.sample(is_streamed=True, max_tokens=5)
    whole = worker.tokens(command)
    told = [event for event in worker.events if isinstance(event, Tokens) and event.command_id == command.command_id]
    parts = [event.output.sequences[0].tokens_T.tolist() for event in told]
    assert [token for part in parts for token in part] == whole
    assert len(parts) == 5


def test_samples_end_alike_whenever_they_are_drawn(worker: Driver) -> None:
    """Would catch a seed that is not the request's."""
    assert worker.tokens(worker.sample(seed=5)) == worker.tokens(worker.sample(seed=5))
    assert worker.tokens(worker.sample(seed=5, max_tokens=20)) != worker.tokens(worker.sample(seed=6, max_tokens=20))


@pytest.mark.parametrize("form", ["state", "weights"])
def test_what_is_saved_is_of_its_turn_and_loads(worker: Driver, tmp_path: Path, form: str) -> None:
    """Would catch a save that has weights of a later step in it."""
    worker.done(worker.create("m"))
    worker.submit(worker.a_pass("m"), worker.step("m"))
    save = worker.save("m", (tmp_path / "saved").as_uri(), form)
    worker.submit(save, worker.publish("m", "s"))
    for _ in range(5):
        worker.submit(worker.a_pass("m", [9, 9]), worker.step("m"))
    answer = worker.answer(save.command_id)
    assert isinstance(answer, Done), answer
    files = list((tmp_path / "saved").iterdir())
    assert answer.output == Saved(
        url=save.url,
        form=save.form,
        sizes={path.name: path.stat().st_size for path in files},
        sha256=checksums(tmp_path / "saved"),
    )
    worker.done(a_fetch(worker, "t", save.url))
    assert worker.tokens(worker.sample("t", max_tokens=20)) == worker.tokens(worker.sample("s", max_tokens=20))
    worker.done(a_load(worker, "n", save.url, with_optimizer=form == "state"))
    worker.done(worker.publish("n", "u"))
    assert worker.tokens(worker.sample("u", max_tokens=20)) == worker.tokens(worker.sample("s", max_tokens=20))


def test_what_is_saved_with_its_gradient_goes_on_as_if_nothing_had_been(worker: Driver, tmp_path: Path) -> None:
    """Would catch passes that are lost with the worker that ran them, and ones that are counted twice."""

    def rest(model_id: str) -> list[Any]:
        commands = [
            worker.a_pass(model_id, [4, 5]),
            worker.step(model_id),
            worker.a_pass(model_id),
            worker.step(model_id),
        ]
        worker.submit(*commands)
        return [worker.done(command) for command in (worker.step(model_id), worker.a_pass(model_id))]

    worker.done(worker.create("m"))
    worker.submit(worker.a_pass("m"), worker.step("m"), worker.a_pass("m", [7, 8, 9]))
    with_it, without = (tmp_path / name for name in ("with", "without"))
    worker.submit(worker.save("m", without.as_uri()))
    worker.done(worker.save("m", with_it.as_uri(), with_gradient=True))
    went_on = rest("m")
    for name, folder, with_gradient in (("n", with_it, True), ("o", with_it, False), ("p", without, True)):
        worker.done(a_load(worker, name, folder.as_uri(), with_gradient=with_gradient))
        came_back = rest(name)
        is_equal = came_back[0] == went_on[0] and came_back[1].metrics == went_on[1].metrics
        assert is_equal == (name == "n")


def test_commands_that_came_behind_a_load_run_behind_it(worker: Driver, tmp_path: Path) -> None:
    """Would catch a replay that has to wait for each answer before it sends the next request."""
    worker.done(worker.create("m"))
    worker.submit(worker.a_pass("m"))
    url = (tmp_path / "saved").as_uri()
    worker.done(worker.save("m", url, with_gradient=True))
    commands = [a_load(worker, "n", url, with_gradient=True), worker.step("n"), worker.publish("n", "s")]
    sample, save = worker.sample("s"), worker.save_snapshot("s", (tmp_path / "published").as_uri())
    worker.submit(*commands, sample, save)
    for command in (*commands, sample, save):
        answer = worker.answer(command.command_id)
        assert isinstance(answer, Done), answer
    assert worker.answer(commands[1].command_id).output == worker.done(worker.step("m"))  # type: ignore[union-attr]


def test_published_weights_are_written_and_fetched(make_worker: MakeWorker, tmp_path: Path) -> None:
    """Would catch samplers that are gone after a restart, and files of other weights than those that were published."""
    worker = make_worker(max_snapshot_bytes=0)
    worker.done(worker.create("m"))
    for index in range(4):
        worker.submit(worker.a_pass("m", [index]), worker.step("m"), worker.publish("m", f"s{index}"))
    for name in ("s0", "s3"):  # one that waits in a file by now, and the newest
        url = (tmp_path / name).as_uri()
        saved = worker.done(worker.save_snapshot(name, url))
        sizes = {path.name: path.stat().st_size for path in (tmp_path / name).iterdir()}
        assert saved == Saved(url=url, form="weights", sizes=sizes, sha256=checksums(tmp_path / name))
        worker.done(a_fetch(worker, f"{name} again", url))
        drawn = [worker.tokens(worker.sample(each, max_tokens=20)) for each in (name, f"{name} again")]
        assert drawn[0] == drawn[1]
        assert isinstance(worker.run(worker.save_snapshot(name, url)), Failed)  # the folder exists


def test_weights_that_are_not_there_are_not_written(make_worker: MakeWorker, tmp_path: Path) -> None:
    """Would catch a server that waits for ever for weights that have been dropped."""
    worker = make_worker(max_snapshot_bytes=64 * 8 * 2, max_snapshot_file_bytes=4 * 2**20)
    worker.done(worker.create("m"))
    for index in range(12):
        worker.done(worker.publish("m", f"s{index}"))
    for name, why in (("unknown", "unknown snapshot"), ("s0", "are gone: newer ones")):
        answer = worker.run(worker.save_snapshot(name, (tmp_path / name).as_uri()))
        assert isinstance(answer, Failed)
        assert answer.failure.kind == "input"
        assert why in answer.failure.message


def test_weights_for_other_libraries_are_written(worker: Driver, tmp_path: Path) -> None:
    worker.done(worker.create("m"))
    saved: Any = worker.done(worker.save("m", (tmp_path / "saved").as_uri(), "external"))
    assert set(saved.sizes) == {"adapter_config.json", "adapter_model.safetensors"}


def test_state_that_cannot_be_copied_is_written_in_its_turn(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker(LittleMemory)
    worker.done(worker.create("m"))
    worker.done(worker.save("m", (tmp_path / "saved").as_uri()))
    worker.done(a_load(worker, "n", (tmp_path / "saved").as_uri()))


def test_more_saves_than_may_wait_are_all_written(make_worker: MakeWorker, tmp_path: Path) -> None:
    """Would catch a worker that stops when its copies are used up, or holds up others meanwhile."""
    worker = make_worker(SlowDisk)
    for name in ("m", "other"):
        worker.done(worker.create(name))
    saves = [worker.save("m", (tmp_path / str(index)).as_uri()) for index in range(7)]
    between = worker.a_pass("other")
    worker.submit(*saves, between)
    for save in saves:
        assert isinstance(worker.answer(save.command_id), Done)
    order = worker.answered()
    assert order.index(between.command_id) < order.index(saves[2].command_id)


def test_a_save_that_cannot_be_written_fails_alone(worker: Driver, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    worker.done(worker.create("m"))
    for form in ("state", "weights", "external"):
        answer = worker.run(worker.save("m", (tmp_path / "taken").as_uri(), form))
        assert isinstance(answer, Failed)
    worker.done(worker.save("m", (tmp_path / "free").as_uri()))


def test_files_of_its_own_are_read_in_parts_and_freed(worker: Driver, tmp_path: Path) -> None:
    """Would catch a worker without a disk in common whose saves can never be had, or stay for ever."""

    def read(url: str, offset: int, num_bytes: int) -> Read:
        return Read(command_id=worker.new_id(), account=ALICE, url=url, offset=offset, num_bytes=num_bytes)

    worker.done(worker.create("m"))
    saved: Any = worker.done(worker.save("m", "worker://w1/mine"))
    (name, size) = next(iter(saved.sizes.items()))
    parts = []
    for offset in range(0, size + 1, 100):
        parts.append(worker.done(read(f"worker://w1/mine/{name}", offset, 100)))
    worker.done(worker.save("m", (tmp_path / "seen").as_uri()))
    assert b"".join(parts) == (tmp_path / "seen" / name).read_bytes()  # type: ignore[arg-type]
    worker.done(a_load(worker, "n", "worker://w1/mine"))
    worker.submit(forget(worker, urls=("worker://w1/mine",)))
    worker.failure(read(f"worker://w1/mine/{name}", 0, 1))


@pytest.mark.parametrize(
    "url",
    [
        "worker://w1/..",
        "worker://w1/../outside",
        "worker://w1/a/../../outside",
        "worker://w1//etc",
        "worker://w1",
        "worker://w2/a",
        "worker://w1/.hidden",
        "file:///tmp/../etc",
        "file://host/tmp",
        "file:relative",
        "http://example.org/x",
        "/tmp/plain",
        "",
    ],
)
def test_urls_of_other_places_are_refused(worker: Driver, url: str) -> None:
    """Would catch a file read or written wherever a name points."""
    worker.done(worker.create("m"))
    assert "no URL of files here" in worker.failure(worker.save("m", url))
    assert "no URL of files here" in worker.failure(a_load(worker, "n", url))
    command = Read(command_id=worker.new_id(), account=ALICE, url=url, offset=0, num_bytes=1)
    assert "no URL of files here" in worker.failure(command)


def test_samples_fail_as_their_fetch_did(worker: Driver) -> None:
    """Would catch a sample that waits for weights which never come."""
    fetch, sample = a_fetch(worker, "s", "file:///nowhere"), worker.sample("s", BOB)
    worker.submit(fetch, sample)
    answer, why = worker.answer(sample.command_id), worker.answer(fetch.command_id)
    assert isinstance(why, Failed)
    assert isinstance(answer, Failed)
    assert answer.failure.message == why.failure.message
    assert isinstance(worker.run(worker.sample("s")), Failed)


def test_what_is_forgotten_is_canceled_and_freed(make_worker: MakeWorker) -> None:
    """Would catch work of an ended session that runs on, and answers that never come."""
    worker = make_worker(EndlessSamples)
    worker.done(worker.create("m"))
    worker.done(worker.publish("m", "s"))
    running = [worker.sample("s"), worker.sample()]
    worker.submit(*running)
    waiting = [worker.a_pass("m"), worker.step("m"), worker.publish("m", "t")]
    worker.submit(
        *waiting,
        forget(
            worker,
            model_ids=("m", "unknown"),
            snapshot_ids=("s", "unknown"),
            command_ids=(*(command.command_id for command in running), "unknown"),
        ),
    )
    answers = [worker.answer(command.command_id) for command in waiting]
    # A child takes commands in one by one: what it began before the last one was there is done.
    canceled = [
        *map(worker.answer, (each.command_id for each in running)),
        *dropwhile(lambda answer: isinstance(answer, Done), answers),
    ]
    for answer in canceled:
        assert isinstance(answer, Failed)
        assert (answer.failure.blame, answer.failure.kind) == ("user", "canceled")
    assert "unknown model" in worker.failure(worker.a_pass("m"))
    assert "unknown snapshot" in worker.failure(worker.sample("s"))
    worker.done(worker.create("m"))


def test_what_waits_is_canceled_before_it_runs(make_worker: MakeWorker) -> None:
    worker = make_worker(SlowEngine)
    worker.done(worker.create("m"))
    first, second, third = [worker.step("m") for _ in range(10)], worker.a_pass("m"), worker.step("m")
    worker.submit(*first, second, third)  # half a second, in which the next one comes also to a busy child
    worker.submit(forget(worker, command_ids=(second.command_id,)))
    answer = worker.answer(second.command_id)
    assert isinstance(answer, Failed)
    assert answer.failure.kind == "canceled"
    assert isinstance(worker.answer(third.command_id), Done)


def test_one_that_cannot_be_sampled_leaves_the_worker_alive(make_worker: MakeWorker) -> None:
    worker = make_worker(BrokenSamples)
    answer = worker.run(worker.sample(prompt_T=np.array([13])))
    assert isinstance(answer, Failed)
    assert answer.failure.blame == "server"
    worker.tokens(worker.sample())


def test_weights_beyond_memory_are_kept_in_files_and_told_of_when_they_go(make_worker: MakeWorker) -> None:
    """Would catch memory that grows with each publication, and a server that does not know what was dropped."""
    worker = make_worker(max_snapshot_bytes=64 * 8 * 2, max_snapshot_file_bytes=4 * 2**20)
    worker.done(worker.create("m"))
    for index in range(12):
        worker.done(worker.publish("m", f"s{index}"))
    gone = worker.until(lambda event: type(event).__name__ == "Evicted")
    assert gone.snapshot_id == "s0"  # type: ignore[union-attr]
    assert "are gone: newer ones" in worker.failure(worker.sample("s0"))
    worker.tokens(worker.sample("s11"))
    worker.tokens(worker.sample("s8"))


def test_weights_that_were_fetched_are_read_again(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker(max_snapshot_bytes=0, max_snapshot_file_bytes=2**20)
    worker.done(worker.create("m"))
    url = (tmp_path / "saved").as_uri()
    worker.done(worker.save("m", url, "weights"))
    worker.done(a_fetch(worker, "f", url))
    for index in range(4):
        worker.done(worker.publish("m", f"s{index}"))
    assert worker.tokens(worker.sample("f")) == worker.tokens(worker.sample("s3"))


def test_it_tells_what_it_has_room_for(make_worker: MakeWorker) -> None:
    """Would catch a server that takes a full worker for an empty one, or for full what has been freed."""
    worker = make_worker(LittleRoom)
    up = next(event for event in worker.events if isinstance(event, Up))
    assert up.room == Room(free_bytes=4 * LittleRoom.model_bytes, base_models=())
    worker.done(worker.create("m"))
    one = Room(free_bytes=3 * LittleRoom.model_bytes, base_models=(BASE,))
    worker.until(lambda event: event == one)
    worker.done(worker.a_pass("m"))
    worker.done(worker.create("n"))
    worker.until(lambda event: isinstance(event, Room) and event.free_bytes == 2 * LittleRoom.model_bytes)
    worker.submit(forget(worker, model_ids=("n",)))
    worker.until(lambda event: event == one and sum(each == one for each in worker.events) == 2)
    assert sum(isinstance(event, Room) for event in worker.events) == 3, "nothing is told that is known"


def status(worker: Driver) -> WorkerStatus:
    output = worker.done(Inspect(command_id=worker.new_id(), account=BOB))
    assert isinstance(output, WorkerStatus)
    return output


def test_it_says_what_it_has_done(worker: Driver) -> None:
    """Would catch turns that are counted twice or not at all, and a status that waits for a turn."""
    worker.done(worker.create("m"))
    for _ in range(3):
        worker.done(worker.a_pass("m"))
    idle = status(worker)
    while idle.turn is not None:  # the answer of a turn is told just before that is over
        idle = status(worker)
    assert {turn.kind: turn.number for turn in idle.turns} == {"other": 0, "train": 4, "sample": 0}
    assert all(turn.seconds >= 0 for turn in idle.turns)
    assert (idle.running, idle.num_running, idle.turn_seconds) == ((), 0, 0.0)
    assert idle.resident_bytes is None or idle.resident_bytes > 2**20


@pytest.mark.parametrize("make_worker", ["thread", "child"], indirect=True)
def test_it_says_in_the_middle_of_a_turn_what_that_is(make_worker: MakeWorker) -> None:
    """Would catch an operator who is told what an engine does only once it has done it."""
    worker = make_worker(EndlessSamples)
    worker.submit(worker.sample(account=ALICE), worker.sample(account=ALICE))
    present = status(worker)
    while present.turn != "sample" or present.num_running < 2:
        present = status(worker)
    assert present.running == (("Sample", ALICE, ""),)


def test_what_is_spent_is_told_with_the_answer(worker: Driver) -> None:
    """Would catch tokens that are counted twice, for another, or only after who asks has been answered."""
    for model_id, account in (("m", ALICE), ("n", BOB)):
        worker.done(worker.create(model_id, account))
    worker.done(worker.a_pass("m", [1, 2, 3]))
    assert spent(worker, "trained_tokens") == {"alice": 3}
    worker.done(worker.a_pass("n", [1, 2], BOB, forward_only=True))
    assert spent(worker, "scored_tokens") == {"bob": 2}
    worker.failure(worker.a_pass("m", [99]))
    worker.tokens(worker.sample(account=BOB, max_tokens=7))
    assert spent(worker, "trained_tokens") == {"alice": 3}
    assert spent(worker, "prompt_tokens") == {"bob": 3}
    assert spent(worker, "sampled_tokens") == {"bob": 7}
    assert set(spent(worker, "engine_seconds")) == {"alice", "bob"}


def test_after_it_is_closed_nothing_comes(make_worker: MakeWorker) -> None:
    worker = make_worker()
    worker.done(worker.create("m"))

    async def close() -> tuple[bool, Any]:
        is_closed = await worker.worker.close(10)
        return is_closed, [await worker.worker.events() for _ in range(2)][-1]

    assert worker.runner.run(close()) == (True, [])
    worker.submit(worker.a_pass("m"))


def test_a_sample_is_of_its_own_command(worker: Driver) -> None:
    """Would catch an answer that nobody can be given."""
    command = worker.sample()
    other = Sample(command_id="another", account=ALICE, request=command.request)
    assert isinstance(worker.run(other), Failed)


@pytest.mark.parametrize("form", ["state", "weights"])
def test_files_that_are_not_what_was_saved_are_not_read(worker: Driver, tmp_path: Path, form: str) -> None:
    """Would catch weights with a flipped bit that are trained on, or sampled from, as if nothing were wrong."""
    worker.done(worker.create("m"))
    saved: Any = worker.done(worker.save("m", (tmp_path / "saved").as_uri(), form))
    load = replace(a_load(worker, "n", saved.url, with_optimizer=False), sha256=saved.sha256)
    fetch = replace(a_fetch(worker, "s", saved.url), sha256=saved.sha256)
    worker.done(replace(load, command_id=worker.new_id()))
    for path in (tmp_path / "saved").iterdir():
        content = path.read_bytes()
        path.write_bytes(content + b" ")
        for command in (load, fetch):
            answer = worker.run(replace(command, command_id=worker.new_id()))
            assert isinstance(answer, Failed), path.name
            assert answer.failure.kind == "damaged", answer
        path.write_bytes(content)
    worker.done(load)
    worker.done(fetch)
