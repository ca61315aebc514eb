"""Catches workers of one name, roles that are mixed up, and numbers that start a server which cannot work."""

from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.server.pool.plans import WorkerPlan, next_plan, plans_of, worker_options
from cookhouse.server.settings import Settings


def test_one_worker_is_what_it_always_was() -> None:
    """Would catch a folder of another name, and a part of the machine where there is nobody to share with."""
    assert plans_of() == plans_of(workers=1) == [WorkerPlan()]
    assert plans_of()[0].num_sharing == 1


def test_workers_have_names_and_parts_of_their_own() -> None:
    plans = plans_of(workers=3)
    assert [(plan.name, plan.index, plan.num_sharing) for plan in plans] == [
        ("worker0", 0, 3),
        ("worker1", 1, 3),
        ("worker2", 2, 3),
    ]
    assert all(plan.trains and plan.samples for plan in plans)


def test_trainers_and_samplers_do_one_thing() -> None:
    plans = plans_of(trainers=1, samplers=2)
    assert [(plan.name, plan.trains, plan.samples) for plan in plans] == [
        ("trainer0", True, False),
        ("sampler1", False, True),
        ("sampler2", False, True),
    ]
    assert {plan.num_sharing for plan in plans} == {3}


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"workers": 2, "samplers": 1}, "give one or the other"),
        ({"trainers": 2}, "go together, at least one of each"),
        ({"samplers": 2}, "go together, at least one of each"),
        ({"trainers": 0, "samplers": 2}, "go together, at least one of each"),
        ({"workers": 0}, "0 workers were asked for; allowed are 1 to 256"),
        ({"workers": 257}, "257 workers were asked for; allowed are 1 to 256"),
        ({"trainers": 200, "samplers": 100}, "300 workers were asked for"),
        ({"trainers": -1, "samplers": 3}, "go together, at least one of each"),
        ({"trainers": 3, "samplers": -1}, "go together, at least one of each"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers: dict[str, int], words: str) -> None:
    """Would catch a server that comes up and cannot train, or sample, or that starts a thousand processes."""
    with pytest.raises(InputError, match=words):
        plans_of(**numbers)


def test_a_worker_that_is_added_leaves_parts_as_they_are() -> None:
    """Would catch one with other threads than the rest, where what a model computes would go by its worker."""
    plans = plans_of(workers=2)
    added = next_plan(plans, 2)
    assert (added.part, added.num_sharing) == (2, 2)
    again = next_plan([plans[1], added], 3)
    assert (again.part, again.num_sharing) == (0, 2)
    assert next_plan(plans_of(), 1).num_sharing == 1


def test_a_worker_that_is_added_is_of_the_others_kind() -> None:
    """Would catch a trainer beside which the samplers stay too few, and a name that was used before."""
    both = next_plan(plans_of(workers=2), 7)
    assert (both.name, both.index, both.trains, both.samples) == ("worker7", 7, True, True)
    sampler = next_plan(plans_of(trainers=1, samplers=1), 2)
    assert (sampler.name, sampler.trains, sampler.samples) == ("sampler2", False, True)
    trainer = next_plan(plans_of(trainers=1, samplers=1), 2, "trainer")
    assert (trainer.name, trainer.trains, trainer.samples) == ("trainer2", True, False)
    with pytest.raises(InputError, match="trainers and samplers apart; add a trainer or a sampler"):
        next_plan(plans_of(trainers=1, samplers=1), 2, "worker")
    with pytest.raises(InputError, match="a trainer is not added; add a worker"):
        next_plan(plans_of(workers=2), 2, "trainer")


def test_workers_have_folders_of_their_own(tmp_path: Path) -> None:
    """Would catch one that deletes another's files when it starts."""
    options = [worker_options(Settings(), tmp_path, plan) for plan in plans_of(workers=2)]
    assert len({one.folder for one in options}) == 2
    assert [(one.worker, one.index, one.num_sharing) for one in options] == [("worker0", 0, 2), ("worker1", 1, 2)]
