"""Catches a sequence that goes on from the state of other tokens, leaked slots, and prompts read again for nothing.

No model: the content of a slot is the tokens that were read before it was written.
"""

import numpy as np
import pytest

from cookhouse.engine.contract import SampleRequest
from cookhouse.engine.sampler.blocks import BlockManager
from cookhouse.engine.sampler.scheduler import Plan, Scheduler
from cookhouse.engine.sampler.sequence import Sequence
from cookhouse.engine.sampler.state_slots import StateSlots, share_of_states

STRIDE, BLOCK = 8, 4


class Machine:
    """A scheduler, and what a model would have written to each slot."""

    def __init__(self, num_blocks: int, *, max_running: int = 4, num_kept: int = 4, budget_tokens: int = 64) -> None:
        blocks = BlockManager(num_blocks, BLOCK)
        self.states = StateSlots(blocks, max_running=max_running, num_kept=num_kept, stride=STRIDE)
        self.scheduler = Scheduler(blocks, max_running=max_running, budget_tokens=budget_tokens, states=self.states)
        self.contents: dict[int, tuple[int, ...]] = {}

    def submit(self, tokens: list[int], num_new: int, *, num_forks: int = 0, owner: str = "") -> Sequence:
        request = SampleRequest(
            request_id=str(tokens), base_model="m", snapshot_id=None, prompt_T=np.array(tokens), seed=0, owner=owner
        )
        sequence = Sequence(
            request=request,
            index=0,
            tokens=list(tokens),
            num_prompt=len(tokens),
            max_total=len(tokens) + num_new,
            seed=0,
            stop_tokens=frozenset(),
            stop_strings=(),
            num_forks=num_forks,
        )
        self.scheduler.submit(sequence)
        return sequence

    def compute(self, plan: Plan) -> None:
        """What a pass does to the slots; it may be done twice, as where a pass fails."""
        written = [slot for piece in plan.pieces for slot in piece.sequence.next_states.values()]
        read = {piece.sequence.state for piece in plan.pieces}
        assert len(set(written)) == len(written)
        assert not read & set(written)
        for piece in plan.pieces:
            tokens = tuple(piece.sequence.tokens)
            if piece.start:
                assert piece.sequence.state is not None
                assert self.contents[piece.sequence.state] == tokens[: piece.start]
            else:
                assert piece.sequence.state is None
            assert max(piece.sequence.next_states) == piece.stop
            for position, slot in piece.sequence.next_states.items():
                assert piece.start < position <= piece.stop
                self.contents[slot] = tokens[:position]

    def step(self) -> list[Sequence]:
        """One pass and what follows; the sequences that finished. Every fourth token is 1, the others 0."""
        plan = self.scheduler.plan()
        self.compute(plan)
        self.compute(plan)
        for piece in plan.pieces:
            self.scheduler.advance(piece)
        finished = []
        for piece in [piece for piece in plan.pieces if piece.is_last]:
            parent = piece.sequence
            children = [parent.fork(index) for index in range(1, parent.num_forks + 1)]
            for child in children:
                self.scheduler.fork(parent, child)
            parent.num_forks = 0
            for sequence in (parent, *children):
                sequence.tokens.append(int(len(sequence.tokens) % 4 == sequence.index % 4))
                if sequence.is_finished:
                    self.scheduler.finish(sequence)
                    finished.append(sequence)
        return finished

    def cancel(self, sequence: Sequence) -> int:
        """Drop a sequence; how many will not finish for that."""
        self.scheduler.finish(sequence)
        return 1 + sequence.num_forks

    def drain(self) -> int:
        """Run everything to its end; how many finished."""
        count = 0
        while self.scheduler.running or self.scheduler.waiting:
            count += len(self.step())
        assert not any(self.states._num_users)
        assert len(self.states._free) == self.states.num_slots
        assert self.states._num_keeping == 0
        return count


def test_a_prompt_that_was_read_is_read_from_its_last_kept_state() -> None:
    machine = Machine(100)
    machine.submit(list(range(21)), 2)
    machine.drain()
    again = machine.submit(list(range(21)), 2)
    (piece,) = machine.scheduler.plan().pieces
    assert (piece.start, piece.stop, again.num_reused) == (16, 21, 16)


def test_where_prompts_part_a_state_is_kept_for_the_third() -> None:
    """Would catch an instruction before many questions that is read for each of them."""
    machine = Machine(100)
    starts = []
    for number in range(3):
        machine.submit([*range(18), *range(100 * number, 100 * number + 20)], 1)
        plan = machine.scheduler.plan()
        (piece,) = plan.pieces
        starts.append(piece.start)
        machine.compute(plan)
        machine.scheduler.advance(piece)
        machine.scheduler.finish(piece.sequence)
    assert starts == [0, 0, 16]


def test_samples_of_a_prompt_share_its_state() -> None:
    machine = Machine(100)
    parent = machine.submit(list(range(10)), 5, num_forks=2)
    machine.step()
    assert len({sequence.state for sequence in machine.scheduler.running}) == 1
    machine.step()
    assert len({sequence.state for sequence in machine.scheduler.running}) == 3
    assert parent.num_cached == 11
    assert machine.drain() == 3


def test_a_state_whose_slot_was_needed_is_not_found() -> None:
    """Would catch a prompt that goes on from what has been written over."""
    machine = Machine(100, max_running=1, num_kept=1)
    for first in (0, 100, 200, 0):
        machine.submit(list(range(first, first + 20)), 3)
        machine.drain()


def test_more_samples_than_may_run_wait_and_finish() -> None:
    machine = Machine(100, max_running=2)
    machine.submit(list(range(30)), 9, num_forks=6)
    assert machine.drain() == 7


@pytest.mark.parametrize("seed", range(20))
def test_random_loads_read_from_the_right_state_and_return_every_slot(seed: int) -> None:
    """With prompts that share beginnings, samples, tenants, some that are canceled, and so few blocks that sequences
    give way.
    """
    rng = np.random.default_rng(seed)
    sizes = {"max_running": int(rng.integers(1, 7)), "num_kept": int(rng.integers(0, 5))}
    machine = Machine(int(rng.integers(16, 40)), **sizes, budget_tokens=int(rng.integers(9, 60)))
    count, finished = 0, 0
    for _ in range(40):
        text, parted = int(rng.integers(3)), int(rng.integers(4))
        length, cut = int(rng.integers(1, 40)), int(rng.integers(1, 40))
        tokens = [(text if i < cut else 10 + parted) * 1000 + i for i in range(length)]
        num_forks, owner = int(rng.integers(0, 4)), str(rng.integers(2))
        machine.submit(tokens, int(rng.integers(1, 20)), num_forks=num_forks, owner=owner)
        count += 1 + num_forks
        if rng.random() < 0.5:
            finished += len(machine.step())
        if machine.scheduler.running and rng.random() < 0.2:
            finished += machine.cancel(machine.scheduler.running[int(rng.integers(len(machine.scheduler.running)))])
    assert finished + machine.drain() == count


def test_states_take_half_of_a_cache_at_most() -> None:
    assert share_of_states(1000, 0, 256) == (256, 0)
    assert share_of_states(8 * 80, 4, 256) == (30, 20)
    assert share_of_states(2**40, 4, 256) == (256, 64)
    assert share_of_states(10, 4, 256) == (1, 0)  # less would run nothing
