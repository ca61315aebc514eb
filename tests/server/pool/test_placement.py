"""Catches models and samples that go where they should not, or all to one worker."""

import asyncio
from dataclasses import replace

import pytest
from tests.server.pool.conftest import MakeWorkers
from tests.server.pool.scripted import ACCOUNT, request, step

from cookhouse.engine.contract import Fetch, LoraSpec, Room
from cookhouse.server.pool.needs import Need
from cookhouse.server.pool.pending import PendingCommand
from cookhouse.server.pool.placement import Placement
from cookhouse.server.pool.worker_handle import WorkerHandle

NEED = Need("b")


def test_a_new_model_goes_where_the_fewest_are(make_workers: MakeWorkers) -> None:
    workers = make_workers(workers=3)
    placement = Placement()
    for index in range(6):
        best, *_ = placement.for_model(workers, NEED)
        placement.put_model(f"m{index}", best)
    assert [placement.num_models()[worker] for worker in workers] == [2, 2, 2]
    placement.drop_models(["m1", "m4"])
    assert placement.for_model(workers, NEED)[0] is workers[1]
    assert placement.models_of(workers[1]) == []


def test_a_model_that_is_put_again_counts_once(make_workers: MakeWorkers) -> None:
    """Would catch a worker that seems full of models which others took over."""
    first, second = make_workers(workers=2)
    placement = Placement()
    for worker in (first, second):
        placement.put_model("m", worker)
    assert placement.models_of(first) == []
    assert placement.num_models()[first] == 0
    placement.forget(second)
    assert placement.worker_of("m") is None
    assert placement.num_models()[second] == 0


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
    second.snapshots.add("w")
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
    worker.note_room(Room(free_bytes=free_bytes, base_models=base_models))


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
    first.note_refusal(fetch(LoraSpec(rank=32, seed=7)))
    asked = request("", "w", prompt=[1])
    assert placement.for_sample(workers, asked, need) is second
    assert placement.for_fetch(workers, need) is second
    assert placement.for_fetch(workers, smaller) is first
    training = Need("b", LoraSpec(rank=32), trains=True)
    assert placement.for_model(workers, training) == [first, second], "a run takes another amount"
    first.snapshots.add("w")
    assert placement.for_sample(workers, asked, need) is first, "it has the weights"
    first.snapshots.clear()
    with_room(first, 2**30, "b", "c")
    assert placement.for_fetch(workers, need) is second
    with_room(first, 2**31, "b")
    assert placement.for_fetch(workers, need) is first


def test_a_refusal_is_forgotten_after_a_while(make_workers: MakeWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch an idle worker that is never asked again, since memory that others free is told by nobody."""
    first, _ = make_workers(workers=2)
    need = Need("b", LoraSpec())
    first.note_refusal(fetch(LoraSpec()))
    assert first.lacks_room(need)
    monkeypatch.setattr("cookhouse.server.pool.worker_handle._REMEMBERED_SECONDS", 0.0)
    assert not first.lacks_room(need)


def test_a_base_model_goes_where_it_fits(make_workers: MakeWorkers) -> None:
    """Would catch a worker that is asked to load what is larger than all the memory that it has."""
    workers = first, second = make_workers(workers=2)
    for worker in workers:
        worker._num_bytes = {"b": 2**31}
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
    placement.drop_models(["m1"])
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
    placement.drop_models(["m9"])
    second.life.lose("gone")
    assert placement.better_worker("m0", workers, NEED, 1) is None
    second.life.last_loss = None
    second.is_up = False
    assert placement.better_worker("m0", workers, NEED, 1) is None
    second.is_up, second.is_draining = True, True
    assert placement.better_worker("m0", workers, NEED, 1) is None
    second.is_draining = False
    second._num_bytes = {"b": 2**20}
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
