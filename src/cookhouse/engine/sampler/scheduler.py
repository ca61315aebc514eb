"""Which sequences run in the next pass, and where in the cache they live. Integers only: testable without a model.

    submit ──► waiting ──admit──► running ──finish──► (gone)
                  ▲                  │
                  └────preempt───────┘      blocks freed; the sequence is read again, but for what the cache still holds

Running sequences go first, oldest first; what is left of the token budget reads prompts, in pieces if need be. When a
running sequence finds no free block, the youngest one is preempted. A sequence starts with the full blocks that the
cache knows of its tokens, whoever computed them. A sequence is admitted only if the whole cache
can hold it at its full length, which is promised to it, so the oldest always finishes.
"""

from collections import deque
from dataclasses import dataclass, field

from cookhouse.engine.sampler.blocks import BlockManager
from cookhouse.engine.sampler.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Piece:
    """Positions [start, stop) of a sequence, to be computed in this pass."""

    sequence: Sequence
    start: int
    stop: int

    @property
    def is_last(self) -> bool:
        """Whether the pass reaches the sequence's last token, so that the next one can be chosen."""
        return self.stop == len(self.sequence.tokens)

    @property
    def is_decoding(self) -> bool:
        """Whether it is the one token sampled last, rather than part of a prompt or of what is read again."""
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

    def __init__(self, blocks: BlockManager, *, max_running: int, budget_tokens: int) -> None:
        self.blocks = blocks
        self.max_running = max_running
        self.budget_tokens = budget_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def can_ever_fit(self, num_positions: int) -> bool:
        """Whether the empty cache would hold a sequence of this length."""
        return self.blocks.num_blocks_for(num_positions) <= self.blocks.num_reachable

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; the caller has checked `can_ever_fit` of its `max_total`."""
        self.blocks.num_promised = max(self.blocks.num_promised, self.blocks.num_blocks_for(sequence.max_total))
        self.waiting.append(sequence)

    def plan(self) -> Plan:
        """Choose the next pass and give its sequences the blocks they need. Empty only if nothing is queued."""
        plan = Plan()
        for sequence in list(self.running):
            if sequence in self.running:
                self._plan_running(plan, sequence)
        while self.waiting and len(self.running) < self.max_running and self._admit(plan, self.waiting[0]):
            self.waiting.popleft()
        return plan

    def advance(self, piece: Piece) -> None:
        """Take note that a piece was computed: the blocks that it filled can now be found by their content."""
        sequence, size = piece.sequence, self.blocks.block_size
        sequence.num_cached = piece.stop
        for index in range(piece.start // size, piece.stop // size):
            tokens = sequence.tokens[index * size : (index + 1) * size]
            self.blocks.remember(sequence.root, sequence.blocks, index, tokens)

    def fork(self, parent: Sequence, child: Sequence) -> tuple[int, int] | None:
        """Start a further sample of a prompt that is in the cache: it shares the full blocks.

        Returns the (source, target) blocks to copy for a partly filled last one. Without a free block for it the child
        waits, and reads the prompt again.
        """
        full = parent.num_cached // self.blocks.block_size
        has_partial = parent.num_cached % self.blocks.block_size > 0
        if len(self.running) >= self.max_running or not self.blocks.provide(int(has_partial)):
            child.num_cached = 0
            self.waiting.appendleft(child)
            return None
        self.blocks.share(parent.blocks[:full])
        child.blocks = parent.blocks[:full]
        self.running.append(child)
        if not has_partial:
            return None
        child.blocks += self.blocks.allocate(1)
        return parent.blocks[full], child.blocks[full]

    def finish(self, sequence: Sequence) -> None:
        """Drop a sequence, running or waiting, and free its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._release(sequence)
        if not (self.running or self.waiting):
            self.blocks.num_promised = 0

    def _plan_running(self, plan: Plan, sequence: Sequence) -> None:
        count = min(sequence.num_uncached, self.budget_tokens - plan.num_tokens)
        if count <= 0:
            return
        while not self._reserve(sequence, sequence.num_cached + count):
            youngest = self.running[-1]
            self._preempt(youngest, plan)
            if youngest is sequence:
                return
        plan.add(Piece(sequence, sequence.num_cached, sequence.num_cached + count))

    def _admit(self, plan: Plan, sequence: Sequence) -> bool:
        budget = self.budget_tokens - plan.num_tokens
        if budget <= 0:
            return False
        self._reuse(sequence)
        stop = sequence.num_cached + min(sequence.num_uncached, budget)
        if not self._reserve(sequence, stop):
            self._release(sequence)
            return False
        self.running.append(sequence)
        plan.add(Piece(sequence, sequence.num_cached, stop))
        return True

    def _reuse(self, sequence: Sequence) -> None:
        if sequence.can_skip_prompt:
            sequence.blocks = self.blocks.find(sequence.root, sequence.tokens)
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
        self.running.remove(sequence)
        self._release(sequence)
        plan.drop(sequence)
        self.waiting.appendleft(sequence)

    def _release(self, sequence: Sequence) -> None:
        self.blocks.free(sequence.blocks)
        sequence.blocks = []
        sequence.num_cached = 0
