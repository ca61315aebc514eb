"""Catches leaked or doubly used blocks, starvation and unbounded passes, with integers alone."""

import numpy as np
import pytest

from cookhouse.engine.contract import SampleRequest
from cookhouse.engine.sampler.blocks import BlockManager
from cookhouse.engine.sampler.scheduler import Plan, Scheduler
from cookhouse.engine.sampler.sequence import Sequence


def _sequence(
    name: str,
    num_prompt: int,
    num_new: int,
    num_forks: int = 0,
    *,
    text: str = "",
    is_scored: bool = False,
    owner: str = "",
    session_id: str = "",
) -> Sequence:
    """A prompt that no other shares, or the beginning of the numbers that belong to `text`."""
    prompt_T = np.random.default_rng(list((text or name).encode())).integers(0, 1000, num_prompt)
    return Sequence(
        request=SampleRequest(
            request_id=name,
            base_model="m",
            snapshot_id=None,
            prompt_T=prompt_T,
            seed=0,
            prompt_logprobs=is_scored,
            owner=owner,
            session_id=session_id,
        ),
        index=0,
        tokens=prompt_T.tolist(),
        num_prompt=num_prompt,
        max_total=num_prompt + num_new,
        seed=0,
        stop_tokens=frozenset(),
        stop_strings=(),
        num_forks=num_forks,
    )


def _scheduler(num_blocks: int, *, max_running: int = 8, budget_tokens: int = 64) -> Scheduler:
    return Scheduler(BlockManager(num_blocks, 4), max_running=max_running, budget_tokens=budget_tokens)


def _check_blocks(scheduler: Scheduler) -> None:
    """Every sequence has room for what it cached, and no block that is not shared serves two."""
    for sequence in scheduler.running:
        assert len(sequence.blocks) * 4 >= sequence.num_cached
    used = {block for sequence in scheduler.running for block in sequence.blocks}
    assert len(used) + scheduler.blocks.num_free == scheduler.blocks.num_blocks


def _advance(scheduler: Scheduler, plan: Plan) -> list[str]:
    """Do to the sequences what a sampler would; return the names of those that finished."""
    finished = []
    for piece in plan.pieces:
        scheduler.advance(piece)
    for piece in [piece for piece in plan.pieces if piece.is_last]:
        parent = piece.sequence
        children = [parent.fork(i) for i in range(1, parent.num_forks + 1)]
        for child in children:
            scheduler.fork(parent, child)
        parent.num_forks = 0
        for sequence in (parent, *children):
            sequence.tokens.append(0)
            if sequence.is_finished:
                scheduler.finish(sequence)
                finished.append(f"{sequence.request.request_id}{sequence.index}")
    return finished


def _drain(scheduler: Scheduler, limit: int = 10_000) -> list[str]:
    finished: list[str] = []
    for _ in range(limit):
        if not scheduler.running and not scheduler.waiting:
            return finished
        plan = scheduler.plan()
        assert 0 < plan.num_tokens <= scheduler.budget_tokens
        assert len({id(piece.sequence) for piece in plan.pieces}) == len(plan.pieces)
        _check_blocks(scheduler)
        finished += _advance(scheduler, plan)
        _check_blocks(scheduler)
    raise AssertionError("the scheduler does not come to an end")


def test_a_long_prompt_is_read_in_pieces_within_the_budget() -> None:
    scheduler = _scheduler(100, budget_tokens=10)
    scheduler.submit(_sequence("a", 25, 1))
    sizes = []
    while scheduler.waiting or scheduler.running:
        plan = scheduler.plan()
        sizes.append(plan.num_tokens)
        _advance(scheduler, plan)
    assert sizes == [10, 10, 5]


def test_running_sequences_go_before_new_prompts() -> None:
    scheduler = _scheduler(100, budget_tokens=8)
    scheduler.submit(_sequence("a", 4, 10))
    _advance(scheduler, scheduler.plan())
    scheduler.submit(_sequence("b", 20, 1))
    plan = scheduler.plan()
    assert [(p.sequence.request.request_id, p.stop - p.start) for p in plan.pieces] == [("a", 1), ("b", 7)]


def test_a_prompt_leaves_room_for_those_that_decode_behind_it_and_no_more() -> None:
    """Would catch samples that stand still while a long prompt is read, and a prompt read in needless pieces."""
    for num_prompt, piece in ((25, 9), (100, 16)):
        scheduler = _scheduler(100, budget_tokens=20)
        scheduler.submit(_sequence("a", 4, 10, num_forks=3))
        scheduler.submit(_sequence("b", num_prompt, 1))
        _advance(scheduler, scheduler.plan())  # the forks come behind b, of which 16 are read
        sizes = [(p.sequence.request.request_id, p.stop - p.start) for p in scheduler.plan().pieces]
        assert sizes == [("a", 1), ("b", piece), ("a", 1), ("a", 1), ("a", 1)]


def test_forks_share_full_blocks_and_copy_the_last() -> None:
    scheduler = _scheduler(100)
    parent = _sequence("a", 10, 3, num_forks=1)
    scheduler.submit(parent)
    plan = scheduler.plan()
    scheduler.advance(plan.pieces[0])
    child = parent.fork(1)
    copy = scheduler.fork(parent, child)
    assert child.blocks[:2] == parent.blocks[:2]
    assert copy == (parent.blocks[2], child.blocks[2])
    assert child.blocks[2] != parent.blocks[2]
    assert scheduler.blocks.num_free == 100 - 4


def test_the_youngest_is_preempted_when_blocks_run_out_and_still_finishes() -> None:
    scheduler = _scheduler(6)
    scheduler.submit(_sequence("a", 8, 12))
    scheduler.submit(_sequence("b", 8, 12))
    assert sorted(_drain(scheduler)) == ["a0", "b0"]
    assert scheduler.blocks.num_free == 6


def test_groups_larger_than_the_running_limit_and_the_cache_finish() -> None:
    scheduler = _scheduler(12, max_running=3)
    scheduler.submit(_sequence("a", 6, 9, num_forks=9))
    assert sorted(_drain(scheduler)) == [f"a{i}" for i in range(10)]
    assert scheduler.blocks.num_free == 12


def _read_lengths(scheduler: Scheduler, *sequences: Sequence) -> list[int]:
    """Run sequences to their end, one after another; return how many positions each one's first pass computed."""
    lengths = []
    for sequence in sequences:
        scheduler.submit(sequence)
        plan = scheduler.plan()
        lengths.append(plan.num_tokens)
        _advance(scheduler, plan)
        _drain(scheduler)
    return lengths


def test_full_blocks_of_a_known_prompt_are_not_read_again() -> None:
    scheduler = _scheduler(100)
    prompts = [_sequence(name, num_prompt, 3, text="x") for name, num_prompt in (("a", 10), ("b", 10), ("c", 12))]
    assert _read_lengths(scheduler, *prompts) == [10, 2, 4]
    assert [sequence.num_reused for sequence in prompts] == [0, 8, 8]
    turn = _sequence("d", 20, 1)
    turn.tokens[:15] = prompts[2].tokens
    assert _read_lengths(scheduler, turn) == [8]
    assert scheduler.blocks.num_free == 100


def test_a_prompt_under_other_weights_is_read_whole() -> None:
    scheduler = _scheduler(100)
    first, second = _sequence("a", 10, 1, text="x"), _sequence("b", 10, 1, text="x")
    second.root = 1
    assert _read_lengths(scheduler, first, second) == [10, 10]


def test_a_prompt_to_be_scored_is_read_whole_and_lends_its_blocks() -> None:
    scheduler = _scheduler(100)
    scored = [_sequence(name, 10, 2, text="x", is_scored=True) for name in "ab"]
    assert _read_lengths(scheduler, *scored, _sequence("c", 10, 2, text="x")) == [10, 10, 2]


def test_a_prompt_that_is_being_decoded_lends_its_blocks() -> None:
    scheduler = _scheduler(5)
    scheduler.submit(_sequence("a", 8, 4, text="x"))
    _advance(scheduler, scheduler.plan())
    scheduler.submit(_sequence("b", 9, 3, text="x"))
    plan = scheduler.plan()
    assert [(piece.start, piece.stop) for piece in plan.pieces] == [(8, 9), (8, 9)]
    _check_blocks(scheduler)
    assert sorted(_advance(scheduler, plan) + _drain(scheduler)) == ["a0", "b0"]
    assert scheduler.blocks.num_free == 5


def test_a_known_prompt_that_finds_no_room_takes_no_blocks() -> None:
    scheduler = _scheduler(5)
    _read_lengths(scheduler, _sequence("known", 8, 1, text="x"))
    scheduler.submit(_sequence("a", 11, 2))
    _advance(scheduler, scheduler.plan())
    scheduler.submit(_sequence("b", 16, 1, text="x"))
    assert [piece.sequence.request.request_id for piece in scheduler.plan().pieces] == ["a"]
    assert scheduler.blocks.num_free == 2
    assert sorted(_drain(scheduler)) == ["a0", "b0"]


@pytest.mark.parametrize("seed", range(20))
def test_random_loads_come_to_an_end_and_return_every_block(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_blocks = int(rng.integers(8, 30))
    scheduler = _scheduler(num_blocks, max_running=int(rng.integers(1, 9)), budget_tokens=int(rng.integers(4, 40)))
    expected = []
    for i in range(30):
        num_prompt, num_new, num_forks = int(rng.integers(1, 16)), int(rng.integers(1, 16)), int(rng.integers(0, 4))
        text, is_scored = str(rng.integers(3)), bool(rng.random() < 0.2)
        scheduler.submit(_sequence(f"r{i}.", num_prompt, num_new, num_forks, text=text, is_scored=is_scored))
        expected += [f"r{i}.{index}" for index in range(num_forks + 1)]
    assert sorted(_drain(scheduler)) == sorted(expected)
    assert scheduler.blocks.num_free == num_blocks


def test_what_can_never_fit_is_known_at_once() -> None:
    scheduler = _scheduler(4)
    assert scheduler.can_ever_fit(16)
    assert not scheduler.can_ever_fit(17)


def _steps_until(scheduler: Scheduler, name: str) -> int:
    """Passes until a request has finished."""
    for step in range(1, 10_000):
        if name in _advance(scheduler, scheduler.plan()):
            _check_blocks(scheduler)
            return step
    raise AssertionError(f"{name} never finishes")


@pytest.mark.parametrize(
    ("num_blocks", "requests"),
    [
        (10_000, [(20, 50, 0)] * 100),
        (10_000, [(20, 50, 30)] * 4),
        (10_000, [(5000, 10, 0)] * 4),
        (60, [(20, 50, 0)] * 100),
    ],
    ids=["many requests", "many samples of each", "long prompts", "few blocks"],
)
def test_no_tenant_waits_behind_the_work_of_another(num_blocks: int, requests: list[tuple[int, int, int]]) -> None:
    """Would catch a line for all tenants, in which one's sample waits for a thousand of another's."""
    scheduler = _scheduler(num_blocks)
    for index, shape in enumerate(requests):
        scheduler.submit(_sequence(f"a{index}.", *shape, owner="a"))
    for _ in range(10):
        _advance(scheduler, scheduler.plan())
    scheduler.submit(_sequence("b", 10, 5, owner="b"))
    assert _steps_until(scheduler, "b0") == 5
    _drain(scheduler)
    assert scheduler.blocks.num_free == num_blocks


def test_tenants_share_the_sequences_that_run() -> None:
    """Would catch one that keeps what it took while it was alone, and pairs that give way to one another for ever."""
    scheduler = _scheduler(1000, max_running=9)
    for owner in "abc":
        for index in range(20):
            scheduler.submit(_sequence(f"{owner}{index}.", 5, 100, owner=owner))
        _advance(scheduler, scheduler.plan())
    owners = [sequence.request.owner for sequence in scheduler.running]
    assert sorted(owners) == list("aaabbbccc")
    before = list(scheduler.running)
    _advance(scheduler, scheduler.plan())
    assert scheduler.running == before
    assert len(_drain(scheduler)) == 60


def test_tenants_share_the_reading_of_prompts() -> None:
    """Would catch a budget that one prompt takes whole, and one that is not used up."""
    scheduler = _scheduler(1000, budget_tokens=60)
    scheduler.submit(_sequence("a", 500, 1, owner="a"))
    _advance(scheduler, scheduler.plan())
    scheduler.submit(_sequence("b", 500, 1, owner="b"))
    scheduler.submit(_sequence("c", 10, 1, owner="c"))
    sizes = {piece.sequence.request.owner: piece.stop - piece.start for piece in scheduler.plan().pieces}
    assert sizes == {"a": 25, "b": 25, "c": 10}


def test_sessions_of_a_tenant_take_turns() -> None:
    """Would catch someone's chat that waits for their own evaluation of a thousand prompts."""
    scheduler = _scheduler(1000, max_running=2)
    for index in range(10):
        scheduler.submit(_sequence(f"eval{index}.", 10, 10, session_id="eval"))
    _advance(scheduler, scheduler.plan())
    scheduler.submit(_sequence("chat", 10, 1, session_id="chat"))
    assert _steps_until(scheduler, "chat0") == 10


def test_the_owner_of_most_blocks_gives_one_up_and_the_oldest_stays() -> None:
    """Would catch a small tenant's sequence that makes way for a large one's."""
    scheduler = _scheduler(25, budget_tokens=100)
    for name, num_prompt, owner in (("a1", 30, "a"), ("a2", 30, "a"), ("b", 10, "b")):
        scheduler.submit(_sequence(name, num_prompt, 30, owner=owner))
        _advance(scheduler, scheduler.plan())
    preempted = set()
    while scheduler.running:
        before = [sequence.request.request_id for sequence in scheduler.running]
        finished = _advance(scheduler, scheduler.plan())
        after = [sequence.request.request_id for sequence in scheduler.running]
        preempted |= {name for name in before if name not in after and f"{name}0" not in finished}
    assert preempted == {"a2"}


@pytest.mark.parametrize("seed", range(20))
def test_random_loads_of_several_tenants_come_to_an_end(seed: int) -> None:
    """Would catch two that take blocks from each other for ever, and blocks lost when one gives way."""
    rng = np.random.default_rng(seed)
    num_blocks = int(rng.integers(8, 30))
    scheduler = _scheduler(num_blocks, max_running=int(rng.integers(1, 9)), budget_tokens=int(rng.integers(9, 40)))
    expected, finished = [], []
    for i in range(60):
        num_prompt, num_new, num_forks = int(rng.integers(1, 16)), int(rng.integers(1, 16)), int(rng.integers(0, 4))
        owner, session_id = str(rng.choice(list("abc"))), str(rng.integers(2))
        scheduler.submit(
            _sequence(f"r{i}.", num_prompt, num_new, num_forks, owner=owner, session_id=owner + session_id)
        )
        expected += [f"r{i}.{index}" for index in range(num_forks + 1)]
        if rng.random() < 0.5:
            finished += _advance(scheduler, scheduler.plan())
            _check_blocks(scheduler)
    assert sorted(finished + _drain(scheduler)) == sorted(expected)
    assert scheduler.blocks.num_free == num_blocks
