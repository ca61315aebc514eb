"""Catches models and samples that go where they should not, or all to one worker."""

from dataclasses import replace

from tests.server.workers.conftest import MakeMembers
from tests.server.workers.scripted import request

from cookhouse.server.workers.placement import Placement


def test_a_new_model_goes_where_the_fewest_are(make_members: MakeMembers) -> None:
    members = make_members(workers=3)
    placement = Placement()
    for index in range(6):
        best, *_ = placement.for_model(members)
        placement.put_model(f"m{index}", best)
    assert [placement.num_models()[member] for member in members] == [2, 2, 2]
    placement.drop_models(["m1", "m4"])
    assert placement.for_model(members)[0] is members[1]
    assert placement.models_of(members[1]) == []


def test_a_model_that_is_put_again_counts_once(make_members: MakeMembers) -> None:
    """Would catch a worker that seems full of models which others took over."""
    first, second = make_members(workers=2)
    placement = Placement()
    for member in (first, second):
        placement.put_model("m", member)
    assert placement.models_of(first) == []
    assert placement.num_models()[first] == 0
    placement.forget(second)
    assert placement.member_of("m") is None
    assert placement.num_models()[second] == 0


def test_workers_that_leave_sample_or_are_down_are_not_asked_to_train(make_members: MakeMembers) -> None:
    trainers = make_members(trainers=3, samplers=1)[:3]
    members = make_members(trainers=3, samplers=1)
    members[0].is_leaving = True
    members[1].is_up = False
    assert Placement().for_model(members) == [members[2], members[1]]
    assert Placement().for_model(trainers) == trainers


def test_a_busy_worker_is_passed_over(make_members: MakeMembers) -> None:
    """Would catch a queue at one worker while another does nothing."""
    first, second = make_members(workers=2)
    placement = Placement()
    first.num_tokens = 100
    assert placement.for_sample([first, second], request()) is second
    assert placement.for_fetch([first, second]) is second


def test_weights_and_prefix_count_as_tokens(make_members: MakeMembers) -> None:
    """Would catch weights that move for a few tokens' sake, and ones that never move."""
    members = first, second = make_members(workers=2)
    placement = Placement()
    asked = request("", "w", prompt=range(300))
    second.snapshots.add("w")
    assert placement.for_sample(members, asked) is second
    second.num_tokens = 300  # less than the prompt and the weights cost at the other
    assert placement.for_sample(members, asked) is second
    second.num_tokens = 10_000
    assert placement.for_sample(members, asked) is first


def test_another_tenant_has_no_part_in_a_prefix(make_members: MakeMembers) -> None:
    """Would catch one tenant that learns from a time which prompts another asks."""
    members = first, second = make_members(workers=2)
    placement = Placement()
    mine, others = (replace(request("", prompt=range(300)), owner=owner) for owner in ("me", "you"))
    second.num_tokens = 0
    first.num_tokens = 1
    assert placement.for_sample(members, mine) is second
    second.num_tokens = 100
    assert placement.for_sample(members, mine) is second
    assert placement.for_sample(members, others) is first


def test_nobody_samples_where_all_leave(make_members: MakeMembers) -> None:
    members = make_members(trainers=1, samplers=1)
    members[1].is_leaving = True
    assert Placement().for_sample(members, request()) is None
    assert Placement().for_fetch(members) is None
