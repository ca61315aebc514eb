"""Scheduler of sequences: which run in the next pass, and where in the cache they live. Integers only: testable without
a model.

    submit ──► waiting ──admit──► running ──finish──► (gone)
                  ▲                  │
                  └────preempt───────┘      blocks freed; the sequence is read again, but for what the cache still holds

Running sequences go first, oldest first; what is left of the token budget reads prompts, in pieces if need be. Owners
share it equally, and who was served fewest tokens is admitted first. Where sequences or blocks are as many as there may
be, the owner that has the most gives up its youngest sequence. A sequence starts with the full blocks that the cache
knows of its tokens, whoever computed them; where layers are recurrent, with those up to a state that was kept. It is
admitted only if the whole cache can hold it at its full length, which is promised to it, and the oldest is never given
up for others, so that it always finishes.
"""

from collections import Counter
from dataclasses import dataclass, field

from cookhouse.engine.rotation import Rotation
from cookhouse.engine.sampler.blocks import BlockManager
from cookhouse.engine.sampler.sequence import Sequence
from cookhouse.engine.sampler.state_slots import StateSlots
from cookhouse.engine.sampler.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Piece:
    """Positions [start, stop) of a sequence, to be computed in this pass."""

    sequence: Sequence
    start: int
    stop: int

    @property
    def is_last(self) -> bool:
        """True if the pass reaches the sequence's last token, so that the next one can be chosen."""
        return self.stop == len(self.sequence.tokens)

    @property
    def is_decoding(self) -> bool:
        """True if it is the one token sampled last, rather than part of a prompt or of what is read again."""
        return self.is_last and self.stop == self.start + 1 and self.start >= self.sequence.num_prompt


@dataclass
class Plan:
    """One pass."""

    pieces: list[Piece] = field(default_factory=list)
    num_tokens: int = 0
    """Positions in the pass."""

    def add(self, piece: Piece) -> None:
        """Compute this piece too."""
        self.pieces.append(piece)
        self.num_tokens += piece.stop - piece.start

    def drop(self, sequence: Sequence) -> None:
        """Compute nothing of this sequence."""
        pieces, self.pieces, self.num_tokens = self.pieces, [], 0
        for piece in pieces:
            if piece.sequence is not sequence:
                self.add(piece)


class Scheduler:
    """Moves sequences between waiting and running; alone calls the block manager."""

    def __init__(
        self, blocks: BlockManager, *, max_running: int, budget_tokens: int, states: StateSlots | None = None
    ) -> None:
        """`states` has slots for `max_running` sequences; None: the model has no recurrent layers."""
        self.blocks = blocks
        self.states = states
        self.max_running = max_running
        self.budget_tokens = budget_tokens
        self.waiting = Waiting()
        self.running: list[Sequence] = []
        self._owners: Rotation[str] = Rotation()
        self.num_live: Counter[str] = Counter()
        """Sequences that wait or run, by owner."""
        self.num_running: Counter[str] = Counter()
        """By owner."""

    def can_ever_fit(self, num_positions: int) -> bool:
        """True if the empty cache would hold a sequence of this length."""
        return self.blocks.num_blocks_for(num_positions) <= self.blocks.num_reachable

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; the caller has checked `can_ever_fit` of its `max_total`."""
        self.blocks.num_promised = max(self.blocks.num_promised, self.blocks.num_blocks_for(sequence.max_total))
        self._count(sequence)
        self.waiting.append(sequence)

    def plan(self) -> Plan:
        """Choose the next pass and give its sequences the blocks they need. Empty only if nothing is queued."""
        plan = Plan()
        shares = self._shares()
        for sequence in list(self.running):
            if sequence in self.running:
                self._plan_running(plan, sequence, shares)
        self._charge(plan)
        self._admit_waiting(plan, shares)
        return plan

    def advance(self, piece: Piece) -> None:
        """Take note that a piece was computed: the blocks that it filled can now be found by their content."""
        sequence, size = piece.sequence, self.blocks.block_size
        sequence.num_cached = piece.stop
        for index in range(piece.start // size, piece.stop // size):
            tokens = sequence.tokens[index * size : (index + 1) * size]
            self.blocks.remember(sequence.root, sequence.blocks, index, tokens)
        if self.states is not None:
            self.states.commit(sequence)

    def fork(self, parent: Sequence, child: Sequence) -> tuple[int, int] | None:
        """Start a further sample of a prompt that is in the cache: it shares the full blocks and the state.

        Returns the (source, target) blocks to copy for a partly filled last one. Without a free block for it the child
        waits, and reads the prompt again.
        """
        self._count(child)
        full = parent.num_cached // self.blocks.block_size
        has_partial = parent.num_cached % self.blocks.block_size > 0
        if len(self.running) >= self.max_running or not self.blocks.provide(int(has_partial)):
            child.num_cached = 0
            self.waiting.appendleft(child)
            return None
        self.blocks.share(parent.blocks[:full])
        child.blocks = parent.blocks[:full]
        if self.states is not None:
            self.states.fork(parent, child)
        self._start(child)
        if not has_partial:
            return None
        child.blocks += self.blocks.allocate(1)
        return parent.blocks[full], child.blocks[full]

    def finish(self, sequence: Sequence) -> None:
        """Drop a sequence, running or waiting, and free its blocks."""
        if sequence in self.running:
            self._stop(sequence)
        else:
            self.waiting.remove(sequence)
        owner = sequence.request.owner
        self.num_live[owner] -= 1
        if not self.num_live[owner]:
            del self.num_live[owner]
            self._owners.remove(owner)
        self._release(sequence)
        if not (self.running or self.waiting):
            self.blocks.num_promised = 0

    def _shares(self) -> dict[str, int]:
        """Positions of the next pass in which each owner may read prompts: equal parts, less what one does not need."""
        if len(self.num_live) <= 1:
            return dict.fromkeys(self.num_live, self.budget_tokens)
        left = self.budget_tokens
        wanted: Counter[str] = Counter()
        for sequence in self.running:
            if sequence.num_uncached == 1:
                left -= 1
            else:
                wanted[sequence.request.owner] += sequence.num_uncached
        for owner in self.waiting.owners:
            wanted[owner] += self.waiting.num_tokens(owner, self.budget_tokens)
        chosen = [owner for owner in self._owners.order() if owner in wanted][: max(left, 0)]
        shares = {}
        for index, owner in enumerate(sorted(chosen, key=wanted.__getitem__)):
            shares[owner] = min(wanted[owner], left // (len(chosen) - index))
            left -= shares[owner]
        return shares

    def _plan_running(self, plan: Plan, sequence: Sequence, shares: dict[str, int]) -> None:
        owner, num_uncached = sequence.request.owner, sequence.num_uncached
        room = self.budget_tokens - plan.num_tokens
        if num_uncached > 1:  # a prompt, which leaves room for those behind it that decode
            behind = self.running[self.running.index(sequence) + 1 :]
            room = min(room - sum(other.num_uncached == 1 for other in behind), shares.get(owner, 0))
        count = min(num_uncached, room)
        if count <= 0:
            return
        while not self._reserve(sequence, sequence.num_cached + count):
            victim = self._with_most_blocks()
            self._preempt(victim, plan)
            if victim is sequence:
                return
        if num_uncached > 1:
            shares[owner] -= count
        self._add(plan, sequence, sequence.num_cached + count)

    def _admit_waiting(self, plan: Plan, shares: dict[str, int]) -> None:
        """Admit from the owners that were served least. When one finds no blocks, nobody else takes those that there
        are: a long prompt would wait for ever.
        """
        candidates = set(self.waiting.owners)
        if len(self.running) >= self.max_running:
            most = max(self.num_running.values())
            candidates = {owner for owner in candidates if self.num_running[owner] + 1 < most}
        while candidates and plan.num_tokens < self.budget_tokens:
            owner = self._owners.first(candidates)
            room = min(shares.get(owner, 0), self.budget_tokens - plan.num_tokens)
            if room <= 0 or not (len(self.running) < self.max_running or self._give_place(plan, owner)):
                candidates.remove(owner)
                continue
            sequence = self.waiting.head(owner)
            while not self._admit(plan, sequence, room):
                if not self._give_blocks(plan, sequence):
                    return
            shares[owner] -= plan.pieces[-1].stop - plan.pieces[-1].start
            candidates &= set(self.waiting.owners)

    def _admit(self, plan: Plan, sequence: Sequence, room: int) -> bool:
        self._reuse(sequence)
        stop = sequence.num_cached + min(sequence.num_uncached, room)
        if not self._reserve(sequence, stop):
            self._release(sequence)
            return False
        self.waiting.remove(sequence, num_read=sequence.num_uncached)
        self._start(sequence)
        self._add(plan, sequence, stop)
        self._owners.charge(sequence.request.owner, stop - sequence.num_cached)
        return True

    def _add(self, plan: Plan, sequence: Sequence, stop: int) -> None:
        if self.states is not None:
            self.states.begin(sequence, stop)
        plan.add(Piece(sequence, sequence.num_cached, stop))

    def _give_place(self, plan: Plan, owner: str) -> bool:
        """Make the owner that runs the most sequences give one up, if it will still have at least as many."""
        most = max(self.num_running, key=self.num_running.__getitem__)
        if self.num_running[most] <= self.num_running[owner] + 1:
            return False
        self._preempt(next(other for other in reversed(self.running) if other.request.owner == most), plan)
        return True

    def _give_blocks(self, plan: Plan, sequence: Sequence) -> bool:
        """Make the owner that holds the most blocks give up a sequence, if it holds more than this one's would then."""
        if len(self.num_running) < 2 and sequence.request.owner in self.num_running:
            return False
        held = self._held_blocks()
        wanted = held[sequence.request.owner] + self.blocks.num_blocks_for(len(sequence.tokens))
        if len(self.running) < 2 or max(held.values()) <= wanted:
            return False
        victim = self._with_most_blocks()
        if held[victim.request.owner] <= wanted:
            return False
        self._preempt(victim, plan)
        return True

    def _with_most_blocks(self) -> Sequence:
        """The youngest sequence of the owner that holds the most blocks; the oldest of all only where it is alone."""
        others = self.running[1:] or self.running
        held = self._held_blocks()
        return max(enumerate(others), key=lambda other: (held[other[1].request.owner], other[0]))[1]

    def _held_blocks(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for sequence in self.running:
            held[sequence.request.owner] += len(sequence.blocks)
        return held

    def _count(self, sequence: Sequence) -> None:
        self.num_live[sequence.request.owner] += 1
        self._owners.add(sequence.request.owner)

    def _charge(self, plan: Plan) -> None:
        """Count what a plan computes of those that run."""
        served: Counter[str] = Counter()
        for piece in plan.pieces:
            served[piece.sequence.request.owner] += piece.stop - piece.start
        for owner, num_tokens in served.items():
            self._owners.charge(owner, num_tokens)

    def _start(self, sequence: Sequence) -> None:
        self.running.append(sequence)
        self.num_running[sequence.request.owner] += 1

    def _stop(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        owner = sequence.request.owner
        self.num_running[owner] -= 1
        if not self.num_running[owner]:
            del self.num_running[owner]

    def _reuse(self, sequence: Sequence) -> None:
        known = self.blocks.find(sequence.root, sequence.tokens) if sequence.can_skip_prompt else []
        sequence.blocks = known if self.states is None else self.states.reuse(sequence, known)
        self.blocks.share(sequence.blocks)
        sequence.num_cached = len(sequence.blocks) * self.blocks.block_size
        if len(sequence.tokens) == sequence.num_prompt:
            sequence.num_reused = sequence.num_cached

    def _reserve(self, sequence: Sequence, num_positions: int) -> bool:
        missing = self.blocks.num_blocks_for(num_positions) - len(sequence.blocks)
        if not self.blocks.provide(missing):
            return False
        if missing > 0:
            sequence.blocks += self.blocks.allocate(missing)
        return True

    def _preempt(self, sequence: Sequence, plan: Plan) -> None:
        self._stop(sequence)
        self._release(sequence)
        plan.drop(sequence)
        self.waiting.appendleft(sequence)

    def _release(self, sequence: Sequence) -> None:
        self.blocks.free(sequence.blocks)
        sequence.blocks = []
        if self.states is not None:
            self.states.release(sequence)
        sequence.num_cached = 0
