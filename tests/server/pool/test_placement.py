"""Catches models and samples that go where they should not, or all to one worker; a model that is tried twice at one
worker, or at one that is drained; and commands that lose their model.
"""

import asyncio
from dataclasses import replace

import pytest
from tests.server.pool.conftest import MakeWorkers
from tests.server.pool.scripted import ACCOUNT, create, request, step

from cookhouse.engine.contract import CanceledError, Fetch, LoraSpec, ModelCommand, NoMemoryError, Room
from cookhouse.errors import InputError
from cookhouse.server.pool.memory import Need
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.placement import Placement
from cookhouse.server.pool.worker_handle import WorkerHandle
from cookhouse.server.pool.workers import Workers

NEED = Need("b")
FULL = NoMemoryError("full")


def test_a_new_model_goes_where_the_fewest_are(make_workers: MakeWorkers) -> None:
    workers = make_workers(workers=3)
    placement = Placement()
    for index in range(6):
        best, *_ = placement.for_model(workers, NEED)
        placement.put_model(f"m{index}", best)
    assert [len(placement.models_of(worker)) for worker in workers] == [2, 2, 2]
    placement.remove_models(["m1", "m4"])
    assert placement.for_model(workers, NEED)[0] is workers[1]
    assert placement.models_of(workers[1]) == []


def test_a_model_that_is_put_again_counts_once(make_workers: MakeWorkers) -> None:
    """Would catch a worker that seems full of models which others took over."""
    first, second = make_workers(workers=2)
    placement = Placement()
    for worker in (first, second):
        placement.put_model("m", worker)
    assert placement.models_of(first) == []
    placement.remove_worker(second)
    assert placement.worker_of("m") is None
    assert placement.models_of(second) == []


def test_workers_that_leave_sample_or_are_down_are_not_asked_to_train(make_workers: MakeWorkers) -> None:
    trainers = make_workers(trainers=3, samplers=1)[:3]
    workers = make_workers(trainers=3, samplers=1)
    workers[0].is_draining = True
    workers[1].is_up = False
    assert Placement().for_model(workers, NEED) == [workers[2], workers[1]]
    assert Placement().for_model(trainers, NEED) == trainers


def test_a_busy_worker_is_passed_over(make_workers: MakeWorkers) -> None:
    """Would catch a queue at one worker while another does nothing."""
    first, second = make_workers(workers=2)
    placement = Placement()
    first.num_tokens = 100
    assert placement.for_sample([first, second], request(), NEED) is second
    assert placement.for_fetch([first, second], NEED) is second


def test_weights_and_prefix_count_as_tokens(make_workers: MakeWorkers) -> None:
    """Would catch weights that move for a few tokens' sake, and ones that never move."""
    workers = first, second = make_workers(workers=2)
    placement = Placement()
    asked = request("", "w", prompt=range(300))
    second.memory.snapshots.add("w")
    assert placement.for_sample(workers, asked, NEED) is second
    second.num_tokens = 300  # less than the prompt and the weights cost at the other
    assert placement.for_sample(workers, asked, NEED) is second
    second.num_tokens = 10_000
    assert placement.for_sample(workers, asked, NEED) is first


def test_another_tenant_has_no_part_in_a_prefix(make_workers: MakeWorkers) -> None:
    """Would catch one tenant that learns from a time which prompts another asks."""
    workers = first, second = make_workers(workers=2)
    placement = Placement()
    mine, others = (replace(request("", prompt=range(300)), owner=owner) for owner in ("me", "you"))
    second.num_tokens = 0
    first.num_tokens = 1
    assert placement.for_sample(workers, mine, NEED) is second
    second.num_tokens = 100
    assert placement.for_sample(workers, mine, NEED) is second
    assert placement.for_sample(workers, others, NEED) is first


def test_nobody_samples_where_all_leave(make_workers: MakeWorkers) -> None:
    workers = make_workers(trainers=1, samplers=1)
    workers[1].is_draining = True
    assert Placement().for_sample(workers, request(), NEED) is None
    assert Placement().for_fetch(workers, NEED) is None


def fetch(lora: LoraSpec) -> Fetch:
    return Fetch(command_id="", account=ACCOUNT, snapshot_id="", base_model="b", lora=lora, url="")


def with_room(worker: WorkerHandle, free_bytes: int, *base_models: str) -> None:
    worker.memory.note_room(Room(free_bytes=free_bytes, base_models=base_models))


def test_a_base_model_draws_what_is_over_it(make_workers: MakeWorkers) -> None:
    """Would catch a base model that every worker loads, and one that keeps all at a single worker."""
    workers = first, second = make_workers(workers=2)
    with_room(first, 2**30, "other")
    with_room(second, 2**30, "b")
    placement = Placement()
    placement.put_model("m", second)
    assert placement.for_model(workers, NEED)[0] is second
    assert placement.for_sample(workers, request(), NEED) is second
    assert placement.for_fetch(workers, NEED) is second
    for index in range(5):
        placement.put_model(f"m{index}", second)
    assert placement.for_model(workers, NEED)[0] is first
    second.num_tokens = 300_000
    assert placement.for_sample(workers, request("", prompt=[2]), NEED) is first
    assert placement.for_fetch(workers, NEED) is first


def test_what_was_refused_is_asked_of_others_until_room_has_changed(make_workers: MakeWorkers) -> None:
    """Would catch a failing Fetch for every sample, a worker that is never asked again, and one that is asked for
    nothing since something else did not fit.
    """
    workers = first, second = make_workers(workers=2)
    for worker in workers:
        with_room(worker, 2**30, "b")
    placement = Placement()
    need, smaller = Need("b", LoraSpec(rank=32)), Need("b", LoraSpec(rank=1))
    first.memory.note_refusal(fetch(LoraSpec(rank=32, seed=7)))
    asked = request("", "w", prompt=[1])
    assert placement.for_sample(workers, asked, need) is second
    assert placement.for_fetch(workers, need) is second
    assert placement.for_fetch(workers, smaller) is first
    training = Need("b", LoraSpec(rank=32), trains=True)
    assert placement.for_model(workers, training) == [first, second], "a run takes another amount"
    first.memory.snapshots.add("w")
    assert placement.for_sample(workers, asked, need) is first, "it has the weights"
    first.memory.snapshots.clear()
    with_room(first, 2**30, "b", "c")
    assert placement.for_fetch(workers, need) is second
    with_room(first, 2**31, "b")
    assert placement.for_fetch(workers, need) is first


def test_a_refusal_is_forgotten_after_a_while(make_workers: MakeWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch an idle worker that is never asked again, since memory that others free is told by nobody."""
    first, _ = make_workers(workers=2)
    need = Need("b", LoraSpec())
    first.memory.note_refusal(fetch(LoraSpec()))
    assert first.memory.lacks_room(need)
    monkeypatch.setattr("cookhouse.server.pool.memory._REMEMBERED_SECONDS", 0.0)
    assert not first.memory.lacks_room(need)


def test_a_base_model_goes_where_it_fits(make_workers: MakeWorkers) -> None:
    """Would catch a worker that is asked to load what is larger than all the memory that it has."""
    workers = first, second = make_workers(workers=2)
    for worker in workers:
        worker.memory.base_model_bytes = {"b": 2**31}
        with_room(worker, 2**30)
    with_room(second, 2**32)
    assert Placement().for_model(workers, NEED) == [second, first]
    assert Placement().for_sample(workers, request(), NEED) is second
    with_room(first, 2**20, "b")
    assert Placement().for_model(workers, NEED) == [first, second], "loaded, it takes no more"


def test_equal_workers_are_taken_by_number(make_workers: MakeWorkers) -> None:
    """Would catch a simulation that does not repeat: what is free differs by a little on every machine."""
    workers = make_workers(workers=3)
    for index, worker in enumerate(workers):
        with_room(worker, 2**30 + index, "b")
    assert Placement().for_model(workers, NEED) == list(workers)
    assert Placement().for_sample(workers, request(), NEED) is workers[0]


def with_models(placement: Placement, worker: WorkerHandle, *model_ids: str) -> None:
    with_room(worker, 2**30, "b")
    for model_id in model_ids:
        placement.put_model(model_id, worker)


def test_a_model_moves_where_fewer_are_trained(make_workers: MakeWorkers) -> None:
    """Would catch an added worker that stays idle, and a model that goes to and fro between two workers."""
    workers = first, second = make_workers(workers=2)
    placement = Placement()
    with_models(placement, first, "m0", "m1", "m2")
    with_models(placement, second)
    assert placement.better_worker("m1", workers, NEED, 1) is second
    placement.remove_models(["m1"])
    placement.send_to("m1", second)
    assert placement.is_sent("m1")
    assert placement.better_worker("m0", workers, NEED, 1) is None
    first.num_tokens = 0
    second.num_tokens = 10**6
    assert placement.for_model(workers, NEED, "m1")[0] is second
    placement.put_model("m1", second)
    assert placement.better_worker("m0", workers, NEED, 1) is None
    assert placement.better_worker("m1", workers, NEED, 1) is None


def test_a_model_does_not_move_where_it_cannot_be_trained(make_workers: MakeWorkers) -> None:
    """Would catch models that wait for memory since they were moved."""
    workers = first, second, _ = make_workers(trainers=2, samplers=1)
    placement = Placement()
    with_models(placement, first, "m0", "m1", "m2", "m3", "m4")
    assert placement.better_worker("m0", workers, NEED, 1) is None, "nothing is known of its memory"
    with_room(second, 2**20, "b")
    assert placement.better_worker("m0", workers, NEED, 2**20 // 3) is second
    assert placement.better_worker("m0", workers, NEED, 2**20 // 3 + 1) is None
    placement.send_to("m9", second)
    assert placement.better_worker("m0", workers, NEED, 1) is None, "another model takes of its memory first"
    placement.remove_models(["m9"])
    second.life.lose("gone")
    assert placement.better_worker("m0", workers, NEED, 1) is None
    second.life.last_loss = None
    second.is_up = False
    assert placement.better_worker("m0", workers, NEED, 1) is None
    second.is_up, second.is_draining = True, True
    assert placement.better_worker("m0", workers, NEED, 1) is None
    second.is_draining = False
    second.memory.base_model_bytes = {"b": 2**20}
    with_room(second, 2**20 + 2)
    assert placement.better_worker("m0", workers, NEED, 1) is None, "the base model takes it all"
    with_room(second, 2**21)
    assert placement.better_worker("m0", workers, NEED, 1) is second
    placement.put_model("m5", second)
    assert placement.better_worker("m0", workers, NEED, 1) is None, "another would wait for the base model"
    for number in range(6, 8):
        placement.put_model(f"m{number}", first)
    assert placement.better_worker("m0", workers, NEED, 1) is second


@pytest.mark.anyio
async def test_models_that_nobody_trains_do_not_count(
    make_workers: MakeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a worker full of idle models that sends away the only one that is trained."""
    workers = first, second = make_workers(workers=2)
    placement = Placement()
    with_models(placement, first, "m0", "m1", "m2")
    with_models(placement, second)
    monkeypatch.setattr("cookhouse.server.pool.placement._ACTIVE_SECONDS", 0.0)
    assert placement.better_worker("m0", workers, NEED, 1) is None
    for model_id in ("m0", "m1"):
        first.commands[model_id] = PendingCommand(command=step("", model_id), answer=asyncio.Future())
    assert placement.better_worker("m0", workers, NEED, 1) is second, "a pass may take longer than that"


def pending(command: ModelCommand) -> PendingCommand:
    return PendingCommand(command=command, answer=asyncio.get_running_loop().create_future())


def place(placement: Placement, workers: Workers, command: ModelCommand) -> WorkerHandle | None:
    return placement.worker_for(pending(command), command, workers)


@pytest.mark.anyio
async def test_workers_are_tried_one_after_the_other(make_workers: MakeWorkers) -> None:
    workers = first, second, third = make_workers(workers=3)
    placement = Placement()
    behind = pending(step("1", "m"))
    assert place(placement, workers, create("m")) is first
    assert placement.worker_for(behind, step("1", "m"), workers) is None
    assert place(placement, workers, step("1", "other")) is first
    assert placement.next_worker("m", first, FULL) is second
    assert placement.worker_of("m") is second
    assert placement.next_worker("m", first, FULL) is FULL  # it has been refused there already
    third.is_draining = True
    failed = placement.next_worker("m", second, FULL)
    assert str(failed) == "no worker has room: worker0: full; worker1: full"
    assert placement.end_creations(["m"]) == [behind]
    assert placement.end_creations(["m"]) == []


@pytest.mark.anyio
async def test_only_memory_is_another_workers_matter(make_workers: MakeWorkers) -> None:
    workers = first, _ = make_workers(workers=2)
    placement = Placement()
    place(placement, workers, create("m"))
    error = InputError("a bad rank")
    assert placement.next_worker("m", first, error) is error
    assert placement.next_worker("unknown", first, FULL) is FULL


@pytest.mark.anyio
async def test_a_model_that_was_moved_goes_on_at_another_worker(make_workers: MakeWorkers) -> None:
    """Would catch a model that ends since it was moved to where it cannot be loaded."""
    workers = first, second, _ = make_workers(workers=3)
    placement, missing, ended = Placement(), InputError("no such file"), CanceledError("its session has ended")
    for model_id in ("m", "other"):
        placement.send_to(model_id, first)
        assert place(placement, workers, create(model_id)) is first
    assert placement.next_worker("m", first, missing) is second
    with_room(first, 2**30, "b")
    assert not first.memory.has_room(NEED, 1), "it could not load the base model"
    assert placement.next_worker("m", second, missing) is missing, "nor was it there before"
    assert placement.next_worker("other", first, ended) is ended


@pytest.mark.anyio
async def test_with_one_worker_nothing_waits(make_workers: MakeWorkers) -> None:
    """Would catch a step that is sent a round trip later than it could be."""
    workers = make_workers()
    placement = Placement()
    place(placement, workers, create("m"))
    assert place(placement, workers, step("1", "m")) is workers[0]
